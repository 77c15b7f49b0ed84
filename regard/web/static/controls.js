// Controls that look and speak alike. Each has a label; a slider says its value in words.
import { element } from "./elements.js";

let count = 0;
const named = () => `control-${(count += 1)}`;

// A slider over low..high; with `log` in equal ratios. `say` makes its value readable.
export function slider({ label, low, high, value, steps = 200, log = false, say = String, onchange, name }) {
  const inside = log ? Math.log : each => each, outside = log ? Math.exp : each => each;
  const [from, to] = [inside(low), inside(high)];
  const id = named();
  const input = element("input", { type: "range", id, name, min: 0, max: steps, step: 1 });
  const output = element("output", { for: id });
  const root = element("div", { class: "control slider" }, element("label", { for: id }, label), output, input);
  const now = () => outside(from + ((to - from) * Number(input.value)) / steps);
  let exact = value;
  const show = () => {
    output.textContent = say(exact);
    input.setAttribute("aria-valuetext", say(exact));
  };
  input.addEventListener("input", () => {
    exact = now();
    show();
    onchange(exact);
  });
  const set = given => {
    exact = given;
    input.value = Math.round((steps * (inside(given) - from)) / (to - from || 1));
    show();
  };
  set(value);
  return { root, input, set, get value() { return exact; } };
}

// One of several, as a drop-down. Options are [value, words].
export function select({ label, options, value, onchange, name }) {
  const id = named();
  const input = element("select", { id, name });
  const fill = (given, chosen) => {
    input.replaceChildren(...given.map(([each, words]) => element("option", { value: each }, words)));
    if (chosen !== undefined && chosen !== null) input.value = chosen;
  };
  fill(options, value);
  input.addEventListener("change", () => onchange(input.value));
  const root = element("div", { class: "control" }, element("label", { for: id }, label), input);
  return { root, input, fill, set: each => { input.value = each; }, get value() { return input.value; } };
}

// One of a few, side by side.
export function choice({ label, options, value, onchange, name }) {
  const group = named();
  const inputs = options.map(([each, words]) => {
    const id = named();
    const input = element("input", { type: "radio", id, name: name ?? group, value: each });
    input.checked = each === value;
    input.addEventListener("change", () => onchange(each));
    return { input, parts: [input, element("label", { for: id }, words)] };
  });
  const root = element(
    "fieldset", { class: "control choice" }, element("legend", {}, label), element("div", { class: "segments" }, inputs.flatMap(each => each.parts)),
  );
  return { root, set: each => inputs.forEach(({ input }) => { input.checked = input.value === each; }), get value() { return inputs.find(({ input }) => input.checked)?.input.value; } };
}

export function checkbox({ label, value, onchange, name }) {
  const id = named();
  const input = element("input", { type: "checkbox", id, name });
  input.checked = value;
  input.addEventListener("change", () => onchange(input.checked));
  const root = element("div", { class: "control check" }, input, element("label", { for: id }, label));
  return { root, input, set: each => { input.checked = each; }, get value() { return input.checked; } };
}

export const button = (words, onclick, more = {}) => element("button", { type: "button", onclick, ...more }, words);

// A group of controls under a heading.
export const panel = (heading, ...children) =>
  element("section", { class: "panel" }, heading ? element("h2", {}, heading) : null, ...children);
