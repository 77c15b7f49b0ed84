// One column of the room: a score and a rule, the weights and outputs that they give, and how those are shown.
import { ask, paced } from "../server.js";
import { drawing, element, shape, text } from "../elements.js";
import { LEVELS, plain } from "../numbers.js";
import { bars } from "../weights.js";
import { entropy, field, inEffect, isOurs, weigh } from "./formula-attention.js";
import { fineness } from "./formula-field.js";
import { Plane } from "./formula-plane.js";
import { fixed, KINDS, RULES, SCORES, terms, told, valueName } from "./formula-words.js";

const LISTED = 12; // bars
const PIXELS = 192, ARROWS = 15, STEPS = 241; // of a field, at most

export class Column {
  constructor(label, room) {
    this.room = room;
    this.result = null; // { weights, output, entropy, kind }
    this.outputs = null; // { grid, values }
    this.isStale = true; // whether the outputs of the plane are of other keys or settings
    this.refusal = "";
    this.plane = new Plane(label);
    this.ask = paced(asked => this.answer(asked));
    this.formulas = element("p", { class: "formulas" });
    this.sum = element("p", { class: "sum" });
    this.notice = element("p", { class: "refusal", hidden: true });
    this.list = element("figure", { class: "weights-list" });
    this.numbers = element("dl", { class: "numbers" });
    this.range = element("figure", { class: "range" });
    this.caption = element("p", { class: "caption" });
    this.root = element("section", { class: "column", "aria-label": label },
      element("div", { class: "words" }, this.sum, this.formulas, this.notice),
      element("div", { class: "seen" }, this.plane.root, element("div", { class: "readings" }, this.list, this.numbers, this.range, this.caption)));
  }

  get kind() {
    return this.result?.kind ?? RULES[this.room.settingsOf(this).rule].kind;
  }

  grid(isMoving) {
    const { points, space, shared } = this.room;
    if (!shared.field) return null;
    const { across, up, dim } = points.axes(space), settings = this.room.settingsOf(this);
    const most = space === "heights" ? STEPS : space === "points" ? ARROWS : isOurs(settings) ? PIXELS : 64;
    const side = space === "colours" ? fineness(points.keys.length, isMoving || !isOurs(settings), most) : most;
    return dim === 1 ? { low: [across[0]], high: [across[1]], shape: [side] } : { low: [across[0], up[0]], high: [across[1], up[1]], shape: [side, side] };
  }

  // Weigh anew; `isMoving` while something is dragged.
  update(isMoving) {
    const settings = this.room.settingsOf(this);
    const ours = isOurs(settings) ? this.here(settings, isMoving) : false;
    if (!ours) this.there(settings, isMoving);
  }

  here(settings, isMoving) {
    const { points, space, shared } = this.room;
    const arrays = points.arrays(space), given = { ...settings, ...shared };
    const found = weigh(points.queryIn(space), arrays, given);
    this.asked = null; // an answer that is still on its way is late
    if (this.isStale) {
      const grid = this.grid(isMoving);
      this.outputs = grid && { grid, values: field(grid, arrays, given) };
      this.isFieldNew = true;
      this.isStale = isMoving;
    }
    if (!found) return false; // the rule refuses these scores: the library says why
    this.refusal = "";
    this.result = { ...found, entropy: entropy(found.weights), kind: RULES[settings.rule].kind };
    return true;
  }

  there(settings, isMoving) {
    const grid = this.isStale ? this.grid(isMoving) : null;
    const isAnew = this.isStale;
    this.isStale = false;
    this.asked = { ...this.room.question(settings), field: isOurs(settings) ? null : grid };
    this.ask({ asked: this.asked, grid: isOurs(settings) ? null : grid, isAnew });
  }

  async answer({ asked, grid, isAnew }) {
    let found = null, refusal = "";
    try {
      found = await ask("formula", "weigh", asked, this.room.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      refusal = error.message;
    }
    const isLate = this.asked === null || this.asked.keys.length !== asked.keys.length || this.asked.rule !== asked.rule || this.asked.score !== asked.score;
    if (isLate) return;
    this.refusal = refusal;
    this.result = found && { weights: asNumbers(found.weights), output: asNumbers(found.output), entropy: found.entropy ?? NaN, kind: found.kind };
    if (found?.field) this.outputs = { grid, values: Float64Array.from(found.field.flat(), each => each ?? NaN) };
    else if (isAnew && !isOurs(this.room.settingsOf(this))) this.outputs = null;
    this.isFieldNew = true;
    this.show();
  }

  show() {
    const { points, space } = this.room;
    this.plane.lay(this.room.sizeOf(this), points, space);
    if (this.isFieldNew || this.drawnSpace !== space) this.plane.drawField(this.outputs?.values ?? null, this.outputs?.grid, points, space);
    this.isFieldNew = false;
    this.drawnSpace = space;
    this.plane.drawRegion(points, space, this.kind);
    this.plane.draw(points, space, this.result);
    this.showWords();
    this.showBars();
    this.showNumbers();
    this.showRange();
  }

  showWords() {
    const { points, space } = this.room, settings = this.room.settingsOf(this);
    this.notice.hidden = !this.refusal;
    this.notice.textContent = this.refusal;
    this.sum.hidden = Boolean(this.refusal);
    const { dim } = points.axes(space);
    const said = `a(q, k) = ${SCORES[settings.score].formula(settings, dim)}\u2003α = ${RULES[settings.rule].formula(settings)}`;
    if (this.formulas.textContent !== said) this.formulas.textContent = said;
    if (this.result) this.sum.replaceChildren(...this.sumOf(space));
  }

  sumOf(space) {
    const { terms: shown, rest } = terms(this.result.weights);
    const parts = [element("span", { class: "head" }, "Attention(q, D) = ")];
    shown.forEach(({ weight, index }, place) => {
      if (place) parts.push(element("span", { class: "sign" }, weight < 0 ? " − " : " + "));
      parts.push(element("span", { class: "term" }, element("b", {}, fixed(place ? Math.abs(weight) : weight)), `·${valueName(index)}`));
    });
    if (shown.length === 0) parts.push(element("span", { class: "term" }, "nothing: no key has weight"));
    if (rest) parts.push(element("span", { class: "sign" }, ` + ${rest} more`));
    parts.push(element("span", { class: "sign" }, " = "), element("span", { class: "total" }, told(this.result.output)));
    if (space === "colours") this.colour(parts);
    return parts;
  }

  colour(parts) {
    const level = this.room.levelOf(this.result.output[0]);
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = `var(--w${level})`;
    parts.push(swatch);
  }

  entries() {
    const { points, space } = this.room;
    const all = points.keys.map((each, index) => ({
      index, name: points.nameOf(index), weight: this.result?.weights[index] ?? 0, more: each.on ? told(points.valueOf(index, space)) : "off",
    }));
    return all.length <= LISTED ? all : [...all].sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight)).slice(0, LISTED);
  }

  showBars() {
    const { points } = this.room, entries = this.entries();
    const chosen = entries.findIndex(({ index }) => points.chosen.kind !== "query" && index === points.chosen.index);
    const hidden = points.keys.length - entries.length;
    this.list.replaceChildren(bars(entries, {
      width: this.room.widthOf(this), names: 6, height: 21, label: this.label(), chosen: chosen < 0 ? undefined : chosen,
      onchoose: place => this.room.choose({ kind: "key", index: entries[place].index }),
    }), ...(hidden ? [element("figcaption", {}, `The ${entries.length} heaviest of ${points.keys.length} keys.`)] : []));
  }

  label() {
    const { points } = this.room;
    if (!this.result) return "No weights.";
    const heaviest = this.result.weights.indexOf(Math.max(...this.result.weights));
    return `Weights of ${points.keys.length} keys; the heaviest is ${points.keys[heaviest]?.name ?? `key ${heaviest + 1}`}. The output is ${told(this.result.output)}.`;
  }

  showNumbers() {
    const { result } = this, weights = result?.weights ?? [];
    const sum = weights.reduce((total, each) => total + each, 0);
    const isOne = Math.abs(sum - 1) < 1e-9;
    const facts = [
      ["Entropy", result && isOne ? `${plain(result.entropy)} nats` : "–"], ["Keys in effect", result ? plain(inEffect(weights)) : "–"],
      ["Sum of weights", result ? plain(sum) : "–"],
    ];
    this.numbers.replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    this.caption.textContent = this.refusal ? "" : KINDS[this.kind];
  }

  // The scale of the colours, where the keys' values are on it, the interval that outputs lie in, and the output.
  showRange() {
    const { points, space } = this.room;
    this.range.hidden = space !== "colours";
    if (space === "colours") this.range.replaceChildren(rangeOf(points, this.result, this.kind, this.room.widthOf(this)));
  }
}

const asNumbers = given => given.map(each => each ?? NaN);

function rangeOf(points, result, kind, width) {
  const [low, high] = points.extent.c, wide = (width - 12) / (LEVELS + 1), left = 6;
  const x = value => left + ((Math.min(Math.max(value, low), high) - low) / (high - low)) * (width - 12);
  const on = points.keys.filter(each => each.on).map(each => each.c);
  const [from, to] = kind === "conic" ? [on.some(each => each < 0) ? low : 0, on.some(each => each > 0) ? high : 0] : [Math.min(...on), Math.max(...on)];
  const hasHull = on.length > 0 && kind !== "linear", output = result?.output[0];
  const parts = Array.from({ length: LEVELS + 1 }, (_, level) => shape("rect", { x: left + level * wide, y: 14, width: wide + 0.5, height: 14, fill: `var(--w${level})` }));
  parts.push(shape("rect", { x: left, y: 14, width: width - 12, height: 14, class: "faint" }));
  if (hasHull) parts.push(shape("path", { class: "bracket", d: `M${x(from)} 33v5H${x(to)}v-5` }), text((x(from) + x(to)) / 2, 52, kind === "conic" ? "cone of the values" : "hull of the values", "quiet small", "middle"));
  parts.push(text(left, 52, plain(low), "quiet small number"), text(width - left, 52, plain(high), "quiet small number", "end"));
  if (Number.isFinite(output)) parts.push(shape("path", { class: "pointer", d: `M${x(output)} 30l-6 -9h12z`, transform: "translate(0 -17)" }), shape("path", { class: "pointer-line", d: `M${x(output)} 12v18` }));
  return drawing(width, 56, `Colours of values from ${plain(low)} to ${plain(high)}; the output is ${Number.isFinite(output) ? plain(output) : "unknown"}`, ...parts);
}
