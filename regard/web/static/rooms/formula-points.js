// The keys of the room, and what it begins with. One key is a place (x, y), a number c that is shown as a colour or a
// height, and a point (u, v): which of them is the key and which the value is how the room is read.
import { flat } from "./formula-attention.js";

const plane = { x: [-3, 3], y: [-3, 3], c: [0, 1] };
const key = ([x, y, c], more = {}) => ({ x, y, c, u: x, v: y, on: true, ...more });
const around = (count, radius) => Array.from({ length: count }, (_, place) => {
  const angle = (2 * Math.PI * place) / count + Math.PI / 8;
  return key([radius * Math.cos(angle), radius * Math.sin(angle), (place + 0.5) / count]);
});

// Numbers that look random and are the same for everybody.
function sequence(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

function crowd(count) {
  const next = sequence(7);
  return Array.from({ length: count }, () => {
    const x = 5.6 * next() - 2.8, y = 5.6 * next() - 2.8;
    return key([x, y, 0.5 + 0.28 * Math.sin(1.3 * x) + 0.2 * Math.cos(1.1 * y)]);
  });
}

const GRADUATES = [
  ["Ada", 2.6, 54000], ["Ben", 2.8, 56500], ["Cho", 3.0, 59000], ["Dev", 3.1, 61500], ["Eva", 3.2, 63500], ["Fay", 3.4, 67000],
  ["Gil", 3.4, 68000], ["Hal", 3.5, 70500], ["Ida", 3.6, 71000], ["Jon", 3.6, 72500], ["Kim", 3.8, 77000], ["Lev", 4.0, 84000],
];
const SCATTERED = [
  [-2.05, 1.7, 0.1], [-0.55, 2.25, 0.34], [1.35, 2.0, 0.62], [2.3, 0.75, 0.95], [0.75, 0.45, 0.78], [-1.2, 0.35, 0.22],
  [-2.3, -0.95, 0.48], [-0.6, -1.15, 0.04], [0.9, -1.45, 0.55], [2.2, -1.75, 0.3], [-1.5, -2.35, 0.86],
];

export const PRESETS = {
  colours: {
    words: "Points with colours", space: "colours", extent: plane, keys: () => SCATTERED.map(each => key(each)), query: [0.15, -0.3],
    settings: { score: "gaussian", rule: "softmax", bandwidth: 0.7 },
  },
  graduates: {
    words: "Graduates: GPA and salary", space: "heights", extent: { x: [2.5, 4.1], y: [-1, 1], c: [50000, 88000] },
    names: { key: "GPA", value: "salary" }, keys: () => GRADUATES.map(([name, x, c]) => key([x, 0, c], { name })), query: [3.5, 0],
    settings: { score: "gaussian", rule: "softmax", bandwidth: 0.0993 },
  },
  lookup: {
    words: "A lookup: the nearest key", space: "colours", extent: plane, keys: () => SCATTERED.map(each => key(each)), query: [0.15, -0.3],
    settings: { score: "gaussian", rule: "onehot", bandwidth: 0.7 },
  },
  average: {
    words: "Average pooling: all keys alike", space: "points", extent: plane, keys: () => SCATTERED.map(each => key(each)), query: [1.6, -0.4],
    settings: { score: "gaussian", rule: "uniform", bandwidth: 0.7 }, isSelf: true,
  },
  circle: {
    words: "A circle of keys: dot products", space: "points", extent: plane, keys: () => around(8, 2.1), query: [1.3, 0.9],
    settings: { score: "scaled", rule: "softmax", temperature: 1 }, isSelf: true,
  },
  cone: {
    words: "A cone: weights of any sum", space: "points", extent: plane, query: [0.35, 0.3],
    keys: () => [[[2.2, -0.6, 0.2], 1.9, 0.35], [[1.4, 1.5, 0.5], 1.5, 1.15], [[-0.5, 2.2, 0.8], 0.5, 1.75], [[-1.9, -0.9, 0.6], 1.0, 0.6]]
      .map(([place, u, v]) => key(place, { u, v })),
    settings: { score: "dot", rule: "conic" }, isSelf: false,
  },
  many: {
    words: "Two hundred keys", space: "colours", extent: plane, keys: () => crowd(200), query: [0.4, 0.2],
    settings: { score: "gaussian", rule: "softmax", bandwidth: 0.35 },
  },
};
export const FIRST = "colours";

const MOST = 400; // keys that one can still tell apart
const PAST = 50; // changes that can be undone

export class Points {
  constructor(preset) {
    this.begin(preset);
  }

  begin(name) {
    const { extent, keys, query, names, isSelf } = PRESETS[name];
    this.preset = name;
    this.extent = extent;
    this.names = names ?? { key: "key", value: "value" };
    this.keys = keys().map((each, index) => ({ ...each, number: index + 1 })); // its own for as long as it lives
    this.query = [...query];
    this.isSelf = isSelf ?? true;
    this.chosen = { kind: "query" };
    this.past = [];
    this.gesture = null;
    this.first = this.written();
  }

  written = () => JSON.stringify([this.keys, this.query]);
  get isChanged() {
    return this.written() !== this.first;
  }

  // The points as they are, before a change. A gesture, such as a drag, is one change. Where the query goes is none:
  // it comes back only where `more` has it.
  remember(gesture = null, more = {}) {
    if (gesture !== null && gesture === this.gesture) return;
    this.gesture = gesture;
    this.past.push({ keys: this.keys.map(each => ({ ...each })), chosen: this.chosen, ...more });
    if (this.past.length > PAST) this.past.shift();
  }

  endGesture() {
    this.gesture = null;
  }

  undo() {
    const before = this.past.pop();
    if (before) Object.assign(this, before);
    this.endGesture();
    return Boolean(before);
  }

  // The points of the preset anew; undone as any other change.
  beginAgain() {
    const { past, preset, isSelf, query } = this;
    this.remember(null, { query });
    this.begin(preset);
    Object.assign(this, { past, isSelf });
  }

  // The coordinates that a drawing has, and how they are read: `space` is "colours", "points" or "heights".
  axes(space) {
    const { x, y, c } = this.extent;
    return { across: x, up: space === "heights" ? c : y, dim: space === "heights" ? 1 : 2, valueDim: space === "points" ? 2 : 1 };
  }

  coordinatesOf(index, space) {
    const { x, y } = this.keys[index];
    return space === "heights" ? [x] : [x, y];
  }

  valueOf(index, space) {
    const each = this.keys[index];
    if (space !== "points") return [each.c];
    return this.isSelf ? [each.x, each.y] : [each.u, each.v];
  }

  queryIn = space => (space === "heights" ? [this.query[0]] : [...this.query]);

  // As the arrays that are computed with.
  arrays(space) {
    const { dim, valueDim } = this.axes(space);
    const places = [...this.keys.keys()];
    return {
      dim, valueDim, keys: flat(places.map(each => this.coordinatesOf(each, space))), values: flat(places.map(each => this.valueOf(each, space))),
      on: Uint8Array.from(this.keys, each => (each.on ? 1 : 0)),
    };
  }

  nameOf = index => this.keys[index].name ?? `k${below(this.keys[index].number)}`;
  titleOf = index => this.keys[index].name ?? this.keys[index].number;
  called = index => `Key ${this.titleOf(index)}`;

  // Where something is drawn: the query, a key, or a key's value.
  placeOf({ kind, index }, space) {
    if (kind === "query") return this.query;
    if (kind === "value") return this.valueOf(index, "points");
    const { x, y, c } = this.keys[index];
    return [x, space === "heights" ? c : y];
  }

  move({ kind, index }, [across, up], space) {
    const { x, y, c } = this.extent;
    const inside = (at, [low, high]) => Math.min(Math.max(at, low), high);
    const isHeight = space === "heights";
    const to = [inside(across, x), inside(up, isHeight ? c : y)];
    if (kind !== "query") this.remember(`${kind} ${index}`);
    if (kind === "query") this.query = isHeight ? [to[0], this.query[1]] : to;
    else if (kind === "value") Object.assign(this.keys[index], { u: to[0], v: to[1] });
    else Object.assign(this.keys[index], { x: to[0] }, isHeight ? { c: to[1] } : { y: to[1] });
  }

  add([across, up], space) {
    if (this.keys.length >= MOST) return false;
    const { y, c } = this.extent, isHeight = space === "heights";
    this.remember();
    const inside = (at, [low, high]) => Math.min(Math.max(at, low), high), number = Math.max(...this.keys.map(each => each.number)) + 1;
    const place = [inside(across, this.extent.x), isHeight ? (y[0] + y[1]) / 2 : inside(up, y), isHeight ? inside(up, c) : c[0] + 0.65 * (c[1] - c[0])];
    this.chosen = { kind: "key", index: this.keys.push(key(place, { number })) - 1 };
    return true;
  }

  remove() {
    if (this.chosen.kind === "query" || this.keys.length < 2) return false;
    this.remember();
    this.keys.splice(this.chosen.index, 1);
    this.chosen = { kind: "key", index: Math.min(this.chosen.index, this.keys.length - 1) };
    return true;
  }

  setValue(index, value) {
    this.remember(`height ${index}`);
    this.keys[index].c = value;
  }

  toggle(index, isOn = !this.keys[index].on) {
    this.remember();
    this.keys[index].on = isOn;
  }

  // The next thing that arrows can move: the query, each key, and each value that lies elsewhere.
  step(by, space) {
    const all = [{ kind: "query" }, ...this.keys.map((_, index) => ({ kind: "key", index }))];
    if (space === "points" && !this.isSelf) all.push(...this.keys.map((_, index) => ({ kind: "value", index })));
    const now = all.findIndex(({ kind, index }) => kind === this.chosen.kind && index === this.chosen.index);
    this.chosen = all[(now + by + all.length) % all.length];
  }
}

export const below = number => [...String(number)].map(digit => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
