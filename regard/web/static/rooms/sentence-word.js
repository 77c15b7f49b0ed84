// What one word attends to, heaviest first.
import { element } from "../elements.js";
import { button } from "../controls.js";
import { percent, plain } from "../numbers.js";
import { bars, cut } from "../weights.js";
import { tell } from "../said.js";

export const LISTED = 14; // words in the list

export function oneWord({ onstep, onchoose }) {
  const name = element("h3", { class: "word-name" }), spread = element("p", { class: "caption" }), list = element("div", { class: "list" });
  const steps = element("div", { class: "steps", role: "group", "aria-label": "Word" },
    button("‹", () => onstep(-1), { "aria-label": "The word before" }), button("›", () => onstep(1), { "aria-label": "The next word" }));
  const root = element("figure", { class: "one" }, element("div", { class: "one-head" }, name, steps), list, spread);
  const some = entries => entries.slice(0, 3).map(each => `${each.name} ${percent(each.weight)}`).join(", ");

  return {
    root,
    // Entries are { name, place, weight }; `rest` is the weight of others that are not among them.
    show({ word, entries, rest = 0, count = entries.length, entropy, unit, isSquare }) {
      const listed = entries.slice(0, LISTED), others = count - listed.length;
      const beyond = entries.slice(LISTED).reduce((sum, { weight }) => sum + weight, rest);
      const nats = entropy ?? entries.reduce((sum, { weight }) => sum - (weight > 0 ? weight * Math.log(weight) : 0), 0);
      const equal = plain(Math.exp(nats), 2);
      name.textContent = `“${cut(word, 24)}” attends to`;
      if (entries.every(({ weight }) => weight === 0) && rest === 0) { // all it has is on keys that are set aside
        list.replaceChildren();
        spread.textContent = "It attends to no key that is shown.";
        tell(`${word} attends to no key that is shown`);
        return;
      }
      const drawn = bars(listed, {
        width: Math.max(Math.round(list.clientWidth || 480), 260), names: 12, label: `What ${word} attends to: ${some(listed)}`,
        onchoose: isSquare ? at => onchoose(listed[at].place) : undefined,
      });
      drawn.style.maxWidth = `${drawn.viewBox.baseVal.width}px`;
      drawn.classList.toggle("is-fixed", !isSquare);
      list.replaceChildren(drawn);
      const left = others > 0 ? `${others.toLocaleString("en")} more share ${percent(beyond)}. ` : "";
      spread.textContent = left + (equal === "1" ? `All of it is on one ${unit.slice(0, -1)}.` : `As spread as ${equal} ${unit} of equal weight.`);
      tell(`${word} attends to ${some(listed)}`);
    },
  };
}
