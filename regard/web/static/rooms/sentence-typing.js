// What is typed: a text, and for a model that writes, what it is to write. It is read as soon as the reader pauses.
import { element } from "../elements.js";

const SHORTEST = 60, LONGEST = 2000, LETTER = 0.1; // milliseconds without a key: as long as the last text took, or this one will
const MOST = "400000"; // letters

export function typing({ kept, onpause }) {
  let pending = null, pause = SHORTEST;
  const field = (name, rows) => {
    const made = element("textarea", { id: `sentence-${name}`, rows, spellcheck: "false", dir: "auto", maxlength: MOST });
    made.value = kept[name];
    made.addEventListener("input", () => {
      kept[name] = made.value;
      fit(made);
      clearTimeout(pending);
      pending = setTimeout(onpause, Math.min(Math.max(pause, made.value.length * LETTER), LONGEST));
    });
    return made;
  };
  const text = field("text", "1"), target = field("target", "1");
  const written = element("div", { class: "written", hidden: true }, element("label", { for: target.id }, "What is written: the model’s own, unless you type another"), target);
  const root = element("div", { class: "writing" }, element("label", { class: "unseen", for: text.id }, "Your text"), text, written);

  // As high as what is in it; beyond a limit of the style sheet it scrolls.
  function fit(each) {
    each.style.height = "auto";
    if (each.scrollHeight) each.style.height = `${each.scrollHeight + 2}px`;
  }
  const sized = new ResizeObserver(() => [text, target].forEach(fit));
  sized.observe(root);

  return {
    root,
    // Whether the model writes, and what it wrote.
    writes(does, words = "") {
      written.hidden = !does;
      target.placeholder = words;
      if (does) fit(target);
    },
    took(milliseconds) { pause = Math.max(milliseconds, SHORTEST); },
    stop: () => clearTimeout(pending),
    end() {
      clearTimeout(pending);
      sized.disconnect();
    },
  };
}
