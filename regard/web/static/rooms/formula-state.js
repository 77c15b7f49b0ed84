// The settings of the room in the address: what it begins with, scores, rules and numbers. Never the points.
import { FIRST, PRESETS } from "./formula-points.js";
import { RULES, SCORES } from "./formula-words.js";

const SPACES = ["colours", "points", "heights"], MASKS = ["all", "left", "nearest"];
const within = (low, high) => given => (given !== "" && Number(given) >= low && Number(given) <= high ? Number(given) : undefined);
const oneOf = known => given => (known.includes(given) ? given : undefined);
const whole = (low, high) => given => (Number.isInteger(Number(given)) ? within(low, high)(given) : undefined);
const flag = given => (given === "1" ? true : given === "0" ? false : undefined);

// Each setting by its name in the address.
const OF_COLUMN = {
  score: ["score", oneOf(Object.keys(SCORES))], rule: ["rule", oneOf(Object.keys(RULES))], bandwidth: ["bandwidth", within(1e-9, 1e9)],
  temperature: ["temperature", within(1e-3, 1e3)], alpha: ["alpha", within(1.01, 10)], k: ["k", whole(1, 400)],
};
const SHARED = { mask: ["mask", oneOf(MASKS)], nearest: ["nearest", whole(1, 400)], field: ["field", flag], compare: ["compare", flag] };
const USUAL = { temperature: 1, alpha: 1.5, k: 3, bandwidth: 0.7 };
const USUALLY_SHARED = { mask: "all", nearest: 3, field: true, compare: false };
// What a second column begins with: the same keys looked up in another way.
const SECOND = { rule: "sparsemax" };

function taken(known, state, ending = "") {
  const found = {};
  for (const [name, [address, read]] of Object.entries(known)) {
    const value = state[address + ending] === undefined ? undefined : read(state[address + ending]);
    if (value !== undefined) found[name] = value;
  }
  return found;
}

const usual = preset => {
  const { settings, space, isSelf } = PRESETS[preset];
  return { preset, space, isSelf: isSelf ?? true, shared: { ...USUALLY_SHARED }, columns: [{ ...USUAL, ...settings }, { ...USUAL, ...settings, ...SECOND }] };
};

export function read(state) {
  const preset = Object.hasOwn(PRESETS, state.preset ?? "") ? state.preset : FIRST, found = usual(preset);
  found.space = oneOf(SPACES)(state.values) ?? found.space;
  found.isSelf = flag(state.self) ?? found.isSelf;
  Object.assign(found.shared, taken(SHARED, state));
  ["", "2"].forEach((ending, column) => Object.assign(found.columns[column], taken(OF_COLUMN, state, ending)));
  return found;
}

const written = value => (value === true ? 1 : value === false ? 0 : typeof value === "number" ? Number(value.toPrecision(4)) : value);

// Only what is not as the room begins.
export function write({ preset, space, isSelf, shared, columns }) {
  const known = usual(preset), told = preset === FIRST ? {} : { preset };
  if (space !== known.space) told.values = space;
  if (isSelf !== known.isSelf) told.self = written(isSelf);
  for (const [name, [address]] of Object.entries(SHARED)) if (shared[name] !== known.shared[name]) told[address] = written(shared[name]);
  columns.slice(0, shared.compare ? 2 : 1).forEach((column, place) => {
    for (const [name, [address]] of Object.entries(OF_COLUMN))
      if (written(column[name]) !== written(known.columns[place][name])) told[address + (place ? "2" : "")] = written(column[name]);
  });
  return told;
}
