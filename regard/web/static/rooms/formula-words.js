// Scores and rules as a reader meets them: their names, what can be set, and their formulas with the numbers that are set.
import { plain, signed } from "../numbers.js";
import { below } from "./formula-points.js";

const wide = ({ bandwidth }) => plain(bandwidth);
export const SCORES = {
  gaussian: { words: "Gaussian", width: "Bandwidth", formula: set => `−‖q − k‖² / (2 · ${wide(set)}²)` },
  scaled: { words: "Scaled dot product", formula: (_, dim) => `q·k / √${dim}` },
  dot: { words: "Dot product", formula: () => "q·k" },
  cosine: { words: "Cosine", formula: () => "q·k / (‖q‖ ‖k‖)" },
  laplacian: { words: "Laplacian", width: "Bandwidth", formula: set => `−‖q − k‖₁ / ${wide(set)}` },
  boxcar: { words: "Boxcar", width: "Radius", formula: set => `1 where ‖q − k‖ ≤ ${wide(set)}, else 0` },
  epanechnikov: { words: "Epanechnikov", width: "Radius", formula: set => `max(0, 1 − ‖q − k‖² / ${wide(set)}²)` },
  triangular: { words: "Triangular", width: "Radius", formula: set => `max(0, 1 − ‖q − k‖ / ${wide(set)})` },
};

const hot = ({ temperature }) => (temperature === 1 ? "exp(a)" : `exp(a / ${plain(temperature)})`);
export const RULES = {
  softmax: { words: "Softmax", kind: "convex", sets: ["temperature"], formula: set => `${hot(set)} / Σ ${hot(set)}` },
  proportional: { words: "Proportional", kind: "convex", sets: [], formula: () => "a / Σ a" },
  sparsemax: { words: "Sparsemax", kind: "convex", sets: [], formula: () => "max(0, a − τ)" },
  entmax: {
    words: "Entmax", kind: "convex", sets: ["alpha"],
    formula: ({ alpha }) => `max(0, ${plain(alpha - 1)}·a − τ) to the power ${plain(1 / (alpha - 1))}`,
  },
  topk: { words: "The k best", kind: "convex", sets: ["k", "temperature"], formula: set => `${hot(set)} / Σ ${hot(set)} of the ${set.k} largest a` },
  onehot: { words: "One-hot", kind: "one-hot", sets: [], formula: () => "1 at the largest a, else 0" },
  uniform: { words: "Uniform", kind: "uniform", sets: [], formula: () => "1 / m" },
  sigmoid: { words: "Sigmoid", kind: "conic", sets: [], formula: () => "1 / (1 + exp(−a))" },
  conic: { words: "Conic", kind: "conic", sets: [], formula: () => "max(a, 0)" },
  raw: { words: "Raw: the scores themselves", kind: "linear", sets: [], formula: () => "a" },
};

export const KINDS = {
  convex: "The weights are convex, at least 0 with sum 1: the output lies in the convex hull of the values.",
  "one-hot": "One weight is 1: the output is one of the values.",
  uniform: "All weights are equal: the output is the mean of the values.",
  conic: "The weights are at least 0, their sum is free: the output lies in the cone of the values.",
  linear: "Weights may be negative: the output is any combination of the values.",
};

// Weights whose sum is free are no shares of anything: they are numbers, not percents.
export const isFree = kind => kind === "conic" || kind === "linear";

// What to do on the page about what the library refuses.
export function remedy({ score, rule }) {
  if (rule !== "proportional") return "";
  const isLogarithm = score === "gaussian" || score === "laplacian";
  return `${isLogarithm ? "Choose" : "Move the query to where no score is below 0, or choose"} Boxcar, Epanechnikov or Triangular for proportional weights. `;
}

// Where an output lies beside values that are numbers; nothing where it is among them.
export function beyond(output, values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (!(output < least || output > most)) return "";
  return `This output is ${output > most ? "above" : "below"} every value: they go from ${told([least])} to ${told([most])}.`;
}

const SMALL = 0.01; // two decimals say too little of what is less
export const fixed = weight => signed(Math.abs(weight) < 1000 && (weight === 0 || Math.abs(weight) >= SMALL) ? weight.toFixed(2) : plain(weight, 2));
// A value or an output: a number, or a point. Values on a scale of about 1 have two decimals each.
export function told(value, { c } = {}) {
  if (value.length > 1) return `(${value.map(each => signed(each.toFixed(2))).join(", ")})`;
  return c && Math.max(...c.map(Math.abs)) <= 10 ? signed(value[0].toFixed(2)) : plain(value[0], Math.abs(value[0]) >= 1000 ? 5 : 3);
}

export const NOWHERE = {
  masked: "The query may attend to no key: every weight and the output are 0.",
  unlike: "No key has a score above 0: every weight and the output are 0.",
};

export const TERMS = 4;
// The terms of the sum that weigh most, in the keys' order: `most` of them, or `more` besides where those of one weight
// would be torn apart. How many there are besides, and how many of these weigh as much as those: what is written as
// heavy as a term that is told is told too, or neither is, unless all are alike.
export function terms(weights, most = TERMS, more = 0) {
  const present = [];
  weights.forEach((weight, index) => { if (weight !== 0 && Number.isFinite(weight)) present.push({ weight, index, size: Math.abs(weight) }); });
  present.sort((a, b) => b.size - a.size || a.index - b.index);
  // What is less says nothing beside what is not.
  const counted = present.filter(({ size }) => size >= SMALL), heaviest = counted.length ? counted : present;
  let count = Math.min(most, heaviest.length), alike = 0;
  const written = count ? fixed(heaviest[count - 1].size) : "";
  if (count < heaviest.length && fixed(heaviest[count].size) === written) {
    const from = heaviest.findIndex(({ size }) => fixed(size) === written), after = heaviest.findIndex(({ size }, place) => place > from && fixed(size) !== written);
    const to = after < 0 ? heaviest.length : after;
    if (to <= most + more) count = to;
    else if (from > 0) count = from;
    else alike = to - count;
  }
  return { terms: heaviest.slice(0, count).sort((a, b) => a.index - b.index), rest: present.length - count - alike, alike };
}
export const valueName = ({ keys }, index) => (keys[index].name ? `v(${keys[index].name})` : `v${below(keys[index].number)}`);
