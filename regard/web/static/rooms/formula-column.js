// One column of the room: a score and a rule, the weights and outputs that they give, and how those are shown.
import { ask, paced } from "../server.js";
import { element, write } from "../elements.js";
import { plain } from "../numbers.js";
import { Bars } from "../weights.js";
import { allowed, entropy, field, isOurs, weigh } from "./formula-attention.js";
import { fineness, hull, isEverywhere, isWithin } from "./formula-field.js";
import { Plane } from "./formula-plane.js";
import { Numbers, Range, Sum } from "./formula-readings.js";
import { beyond, isFree, KINDS, NOWHERE, remedy, RULES, SCORES, told } from "./formula-words.js";

const LISTED = 12; // bars
const ARROWS = 15, STEPS = 241; // of a field along each axis
const PIXELS = { here: 288, there: 144, moving: 48 }; // at most: what is computed here, and by the server

export class Column {
  constructor(label, room) {
    this.room = room;
    this.result = null; // { weights, output, entropy, kind }
    this.outputs = null; // { grid, values }
    this.isStale = true; // whether the outputs of the plane are of other keys or settings
    this.refusal = "";
    this.plane = new Plane(label);
    this.answering = null; // a promise while the server is asked
    this.ask = paced(asked => this.answer(asked));
    this.sum = new Sum();
    this.score = element("span");
    this.rule = element("span");
    this.formulas = element("p", { class: "formulas" }, this.score, "\u2003", this.rule);
    this.notice = element("p", { class: "refusal", role: "status", hidden: true });
    this.bars = new Bars(place => this.room.choose({ kind: "key", index: this.listed[place] }));
    this.more = element("figcaption");
    this.list = element("figure", { class: "weights-list" }, this.bars.svg, this.more);
    this.numbers = new Numbers();
    this.range = new Range();
    this.caption = element("p", { class: "caption" });
    this.root = element("section", { class: "column", "aria-label": label },
      element("div", { class: "words" }, this.sum.root, this.formulas, this.notice),
      element("div", { class: "seen" }, this.plane.root, element("div", { class: "readings" }, this.list, this.numbers.root, this.range.root, this.caption)));
  }

  get kind() {
    return this.result?.kind ?? RULES[this.room.settingsOf(this).rule].kind;
  }

  grid(isMoving) {
    const { points, space, shared } = this.room;
    if (!shared.field) return null;
    const { across, up, dim } = points.axes(space), ours = isOurs(this.room.settingsOf(this));
    const finest = ours ? PIXELS.here : isMoving ? PIXELS.moving : PIXELS.there;
    const side = space === "heights" ? STEPS : space === "points" ? ARROWS : fineness(points.keys.length, isMoving, finest);
    return dim === 1 ? { low: [across[0]], high: [across[1]], shape: [side] } : { low: [across[0], up[0]], high: [across[1], up[1]], shape: [side, side] };
  }

  // Weigh anew; `isMoving` while something is dragged.
  update(isMoving) {
    const settings = this.room.settingsOf(this);
    const ours = isOurs(settings) ? this.here(settings, isMoving) : false;
    if (!ours) this.there(settings, isMoving);
  }

  here(settings, isMoving) {
    const { points, space, shared, arrays } = this.room;
    const given = { ...settings, ...shared };
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
    this.sizes = this.sizesNow();
    this.result = { ...found, entropy: entropy(found.weights), kind: RULES[settings.rule].kind };
    return true;
  }

  there(settings, isMoving) {
    const isAnew = (this.isStale || this.isOwed) && !isOurs(settings), grid = isAnew ? this.grid(isMoving) : null;
    if (isAnew) [this.isStale, this.isOwed] = [isMoving, true]; // until it is asked: a later question may take its place
    // Weights of other keys, or of values of another kind, are not shown until the answer is there.
    if (this.sizes !== this.sizesNow()) {
      this.result = null;
      if (isAnew) this.outputs = null;
    }
    this.asked = { ...this.room.question(settings), field: grid };
    const answered = this.ask({ asked: this.asked, grid, isAnew });
    // The first of several that are asked in a row ends with the last of them.
    this.answering ??= answered.finally(() => { this.answering = null; });
  }

  async answer({ asked, grid, isAnew }) {
    if (isAnew) this.isOwed = false;
    let found = null, refusal = "";
    try {
      found = await ask("formula", "weigh", asked, this.room.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      refusal = error.status === 422 ? `${remedy(asked)}${error.message}` : error.message;
    }
    // Of what is no longer shown. While something is dragged, the answer to a place a little before is shown.
    if (this.asked === null || formOf(this.asked) !== formOf(asked) || sizesOf(asked) !== this.sizesNow()) return;
    this.refusal = refusal;
    this.sizes = sizesOf(asked);
    this.result = found && { weights: asNumbers(found.weights), output: asNumbers(found.output), entropy: found.entropy, kind: found.kind };
    if (found?.field) this.outputs = { grid, values: Float64Array.from(found.field.flat(), each => each ?? NaN) };
    else if (isAnew) this.outputs = null;
    if (isAnew) this.isFieldNew = true;
    this.show();
    this.room.answered(this);
  }

  sizesNow() {
    const { points, space } = this.room, { dim, valueDim } = points.axes(space);
    return [dim, valueDim, points.keys.length].join();
  }

  // Before anything is drawn: reading a size after writing has the page laid out once more.
  measure() {
    this.size = Math.max(Math.round(this.plane.root.clientWidth), 200);
    this.width = Math.max(Math.round(this.list.clientWidth), 200);
  }

  show() {
    const { points, space, shared, arrays, edition } = this.room;
    this.scale = this.room.scale();
    const isLaid = this.plane.lay(this.size, points, space);
    if (this.isFieldNew || isLaid) this.drawOutputs();
    this.isFieldNew = false;
    this.plane.draw(points, space, this.result, {
      edition, kind: this.kind, scale: this.scale, allowed: shared.mask === "all" ? null : allowed(points.queryIn(space), arrays, shared),
    });
    this.showWords();
    this.showBars();
    this.numbers.show(this.result);
    this.range.root.hidden = space !== "colours";
    if (space === "colours") this.range.show(points, this.result, this.kind, this.width);
  }

  drawOutputs() {
    const { points, space } = this.room;
    this.plane.drawField(this.outputs?.values ?? null, this.outputs?.grid, points, space);
  }

  showWords() {
    const { points, space } = this.room, settings = this.room.settingsOf(this), { dim } = points.axes(space);
    this.notice.hidden = !this.refusal;
    write(this.notice, this.refusal);
    this.sum.root.hidden = Boolean(this.refusal) || this.result === null;
    write(this.score, `a(q, k) = ${SCORES[settings.score].formula(settings, dim)}`);
    write(this.rule, `α = ${RULES[settings.rule].formula(settings)}`);
    if (this.result) this.sum.show(this.result, points, space === "colours" ? this.room.levelOf(this.result.output[0]) : null);
    write(this.caption, this.refusal ? "" : this.explanation());
  }

  explanation() {
    const { points, space, shared, arrays } = this.room, { c: [low, high] } = points.extent;
    if (this.result?.weights.every(each => each === 0))
      return allowed(points.queryIn(space), arrays, shared).includes(1) ? NOWHERE.unlike : NOWHERE.masked;
    if (!this.result || !isFree(this.kind)) return KINDS[this.kind];
    const { output } = this.result, values = points.keys.map((_, index) => points.valueOf(index, space)).filter((_, index) => points.keys[index].on);
    const said = [KINDS[this.kind]];
    if (this.kind === "conic" && isEverywhere(values)) said.push(`Here that is ${space === "points" ? "the whole plane" : "every number"}.`);
    said.push(space === "points" ? (isWithin(output, hull(values)) ? "" : "This output lies outside of their hull.") : beyond(output[0], values.map(([each]) => each)));
    if (space === "colours" && (output[0] < low || output[0] > high)) said.push("It is beyond the scale of colours.");
    return said.filter(Boolean).join(" ");
  }

  entries() {
    const { points, space, edition } = this.room, { keys } = points;
    if (edition !== this.toldOf) {
      this.toldOf = edition;
      this.names = keys.map((_, index) => points.nameOf(index));
      this.told = keys.map((each, index) => (each.on ? told(points.valueOf(index, space), points.extent) : "off"));
    }
    let listed = [...keys.keys()];
    const weightOf = index => (this.result ? this.result.weights[index] ?? 0 : NaN);
    if (keys.length > LISTED) listed = listed.sort((a, b) => Math.abs(weightOf(b)) - Math.abs(weightOf(a)) || a - b).slice(0, LISTED);
    this.listed = listed;
    return listed.map(index => ({ name: this.names[index], weight: weightOf(index), more: this.told[index] }));
  }

  showBars() {
    const { points, isMoving } = this.room, entries = this.entries();
    const chosen = points.chosen.kind === "query" ? -1 : this.listed.indexOf(points.chosen.index);
    // Who hears the page is told what moved once it lies still.
    if (!isMoving || !this.said) this.said = this.label();
    const numbers = isFree(this.kind) ? { say: plain, sayExactly: each => plain(each, 6) } : {};
    this.bars.show(entries, {
      width: this.width, names: 6, height: 21, label: this.said, chosen: chosen < 0 ? undefined : chosen, largest: this.scale.most || 1,
      heads: ["key", points.names.value, "weight"], ...numbers,
    });
    const heaviest = this.kind === "linear" ? "of the largest weights by size," : "heaviest";
    write(this.more, entries.length < points.keys.length ? `The ${entries.length} ${heaviest} of ${points.keys.length} keys.` : "");
    this.more.hidden = entries.length === points.keys.length;
  }

  label() {
    const { points } = this.room;
    if (!this.result) return "No weights.";
    if (this.result.weights.every(each => each === 0)) return "Every weight and the output are 0.";
    const { weights, output, kind } = this.result, sizes = weights.map(Math.abs), heaviest = sizes.indexOf(Math.max(...sizes));
    const key = points.keys[heaviest], name = key?.name ?? `key ${key?.number}`;
    const which = kind === "linear" ? `the largest by size is that of ${name}, ${plain(weights[heaviest])}` : `the heaviest is ${name}`;
    return `Weights of ${points.keys.length} keys; ${which}. The output is ${told(output)}.`;
  }
}

const asNumbers = given => given.map(each => each ?? NaN);
const sizesOf = ({ keys, values, query }) => [query.length, values[0].length, keys.length].join();
const formOf = asked => [asked.score, asked.rule, sizesOf(asked)].join();
