// What is read beside a plane: the sum in numbers, facts about the weights, and the scale of colours. Parts are made
// once; while something moves only what changes is written.
import { drawing, element, put, shape, text, write } from "../elements.js";
import { LEVELS, plain } from "../numbers.js";
import { inEffect } from "./formula-attention.js";
import { fixed, TERMS, terms, told, valueName } from "./formula-words.js";

// Attention(q, D) = 0.43·v₅ + 0.29·v₈ + 9 more = 0.462
export class Sum {
  constructor() {
    const span = kind => element("span", { class: kind });
    this.terms = Array.from({ length: TERMS + 1 }, () => ({ sign: span("sign"), weight: element("b"), name: span("name") }));
    this.rest = span("sign");
    this.total = span("total");
    this.swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    this.root = element("p", { class: "sum" }, this.head = span("head"),
      this.terms.flatMap(({ sign, weight, name }) => [sign, element("span", { class: "term" }, weight, name)]), this.rest, this.equals = span("sign"), element("span", { class: "result" }, this.total, this.swatch));
  }

  show({ weights, output }, points, level) {
    const { terms: shown, rest, alike } = points.keys[0]?.name ? terms(weights, TERMS - 1, 2) : terms(weights);
    this.root.classList.toggle("is-long", Boolean(points.keys[0]?.name));
    write(this.head, shown.length ? "Attention(q, D) = " : "");
    this.terms.forEach(({ sign, weight, name }, place) => {
      const term = shown[place];
      write(sign, term && place ? (term.weight < 0 ? " − " : " + ") : "");
      write(weight, term ? fixed(place ? Math.abs(term.weight) : term.weight) : "");
      write(name, term ? `·${valueName(points, term.index)}` : place === 0 ? "No key has a weight, so the output is " : "");
    });
    write(this.rest, `${alike ? ` + ${alike} more of as much` : ""}${rest ? ` + ${rest} more` : ""}`);
    write(this.equals, shown.length ? " = " : "");
    write(this.total, told(output));
    this.swatch.hidden = level === null;
    const colour = level === null ? "" : `var(--w${level})`;
    if (colour !== this.colour) this.swatch.style.background = this.colour = colour;
  }
}

const ROUNDING = 1e-6; // an entropy that is less is rounding
const NOTES = { "Keys in effect": "(Σ α)² / Σ α²: as many keys of equal weight would say as much" };

export class Numbers {
  constructor() {
    this.values = ["Entropy", "Keys in effect", "Σ α"].map(name => ({ name, value: element("dd") }));
    this.root = element("dl", { class: "numbers" }, this.values.map(({ name, value }) => element("div", {}, element("dt", { title: NOTES[name] }, name), value)));
  }

  show(result) {
    const weights = result?.weights ?? [], total = weights.reduce((sum, each) => sum + each, 0);
    // Of weights that cancel nothing is left but rounding. How many keys are in effect is a question about shares.
    const sum = Math.abs(total) < 1e-12 * weights.reduce((size, each) => size + Math.abs(each), 0) ? 0 : total;
    const isShared = weights.every(each => each >= 0);
    const said = result ? [Number.isFinite(result.entropy) ? `${plain(result.entropy < ROUNDING ? 0 : result.entropy)} nats` : "–", isShared ? plain(inEffect(weights)) : "–", plain(sum)] : ["–", "–", "–"];
    this.values.forEach(({ value }, place) => write(value, said[place]));
  }

  get words() {
    return this.values.map(({ name, value }) => `${name} ${value.textContent}`).join(" · ");
  }
}

const EDGE = 6;
// The scale of the colours, the interval that values let an output lie in, and the output.
export class Range {
  constructor() {
    this.root = element("figure", { class: "range" });
    this.pointer = shape("g", {}, shape("path", { class: "pointer", d: "M0 13l-6 -9h12z" }), shape("path", { class: "pointer-line", d: "M0 12v18" }));
  }

  show(points, result, kind, width) {
    const on = points.keys.filter(each => each.on).map(each => each.c), { c: ends } = points.extent;
    const said = JSON.stringify([on, ends, kind, width]);
    if (said !== this.said) this.lay(on, ends, kind, width);
    this.said = said;
    const output = result?.output[0], isKnown = Number.isFinite(output);
    put(this.pointer, { transform: `translate(${isKnown ? this.x(output).toFixed(1) : 0} 0)`, display: isKnown ? "inline" : "none" });
    put(this.svg, { "aria-label": `Colours of values from ${plain(ends[0])} to ${plain(ends[1])}; the output is ${isKnown ? plain(output) : "unknown"}` });
  }

  lay(on, [low, high], kind, width) {
    const long = width - 2 * EDGE, wide = long / (LEVELS + 1);
    const x = (this.x = value => EDGE + ((Math.min(Math.max(value, low), high) - low) / (high - low)) * long);
    const isCone = kind === "conic";
    const [from, to] = isCone ? [on.some(each => each < 0) ? low : 0, on.some(each => each > 0) ? high : 0] : [Math.min(...on), Math.max(...on)];
    const parts = Array.from({ length: LEVELS + 1 }, (_, level) => shape("rect", { x: EDGE + level * wide, y: 14, width: wide + 0.5, height: 14, fill: `var(--w${level})` }));
    parts.push(shape("rect", { x: EDGE, y: 14, width: long, height: 14, class: "faint" }));
    if (on.length > 0) {
      const middle = Math.min(Math.max((x(from) + x(to)) / 2, 90), width - 90);
      parts.push(shape("path", { class: "bracket", d: `M${x(from)} 33v5H${x(to)}v-5` }), text(middle, 52, isCone ? "cone of the values" : "hull of the values", "quiet small", "middle"));
    }
    parts.push(text(EDGE, 52, plain(low), "quiet small number"), text(width - EDGE, 52, plain(high), "quiet small number", "end"), this.pointer);
    this.svg = drawing(width, 56, "", ...parts);
    this.root.replaceChildren(this.svg);
  }
}
