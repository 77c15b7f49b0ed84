// The controls of one column: its score and its rule, each with what can be set of it.
import { panel, select, slider } from "../controls.js";
import { element } from "../elements.js";
import { plain } from "../numbers.js";
import { RULES, SCORES } from "./formula-words.js";

const named = choices => Object.entries(choices).map(([name, { words }]) => [name, words]);

// Why a width does nothing, where it does not.
function idleness({ score, rule }) {
  if (rule === "uniform") return "Uniform weights are the same for every score and width.";
  if (rule === "onehot" && (score === "gaussian" || score === "laplacian")) return "The nearest key is the nearest at every bandwidth.";
  return "";
}

let marks = 0;
function markAt(input, step) {
  const id = `formula-mark-${(marks += 1)}`;
  input.after(element("datalist", { id }, element("option", { value: step })));
  input.setAttribute("list", id);
}

export function controls(heading, room, column) {
  const settings = room.settingsOf(column);
  const set = (name, value, isMoving = false) => {
    room.settingsOf(column)[name] = value;
    show();
    room.changed("settings", isMoving);
  };
  const parts = {
    score: select({ label: "Score a(q, k)", options: named(SCORES), value: settings.score, onchange: each => set("score", each) }),
    bandwidth: slider({ label: "Bandwidth", ...room.widths(), value: settings.bandwidth, log: true, say: each => plain(each), onchange: each => set("bandwidth", each, true) }),
    rule: select({ label: "Rule: how scores become weights", options: named(RULES), value: settings.rule, onchange: each => set("rule", each) }),
    temperature: slider({ label: "Temperature", low: 0.02, high: 50, value: settings.temperature, log: true, say: each => plain(each), onchange: each => set("temperature", Math.abs(each - 1) < 0.02 ? 1 : each, true) }),
    alpha: slider({ label: "Alpha: 1 is softmax, 2 sparsemax", low: 1.05, high: 3, value: settings.alpha, steps: 195, say: each => each.toFixed(2), onchange: each => set("alpha", Math.round(100 * each) / 100, true) }),
    k: slider({ label: "How many keys", low: 1, high: 12, value: settings.k, steps: 11, say: each => String(Math.round(each)), onchange: each => set("k", Math.round(each), true) }),
  };
  const note = element("p", { class: "caption" });
  markAt(parts.temperature.input, 100); // of its 200 steps: a temperature of 1
  function show() {
    const now = room.settingsOf(column), { width } = SCORES[now.score], { sets } = RULES[now.rule];
    parts.bandwidth.root.hidden = !width;
    if (width) parts.bandwidth.root.querySelector("label").textContent = width;
    const idle = width ? idleness(now) : "";
    parts.bandwidth.input.disabled = Boolean(idle);
    note.textContent = idle || (now.rule === "uniform" ? "Uniform weights are the same for every score." : "");
    note.hidden = !note.textContent;
    for (const name of ["temperature", "alpha", "k"]) parts[name].root.hidden = !sets.includes(name);
  }
  // What was set elsewhere: by the address, or by what the room begins with.
  function follow() {
    const now = room.settingsOf(column);
    for (const [name, part] of Object.entries(parts)) part.set(now[name]);
    show();
  }
  show();
  return { root: panel(heading, ...Object.values(parts).flatMap(part => (part === parts.bandwidth ? [part.root, note] : [part.root]))), follow };
}
