// What the page computes itself, so that a drag needs no server: dot products and Gaussians under softmax,
// proportional, one-hot and uniform weights. Tests hold it to the library; all else, and what a rule refuses, is the
// library's to answer.

const SCORES = new Set(["dot", "scaled", "gaussian"]);
const RULES = new Set(["softmax", "proportional", "onehot", "uniform"]);

// Proportional weights of the logarithm of a kernel are refused, in the library's words.
export const isOurs = ({ score, rule }) => SCORES.has(score) && RULES.has(rule) && !(score === "gaussian" && rule === "proportional");

// Points lie one after another in an array: `dim` numbers each.
export const flat = points => Float64Array.from(points.flat());

function scoresInto(scores, query, at, keys, dim, { score, bandwidth }) {
  const factor = score === "gaussian" ? -0.5 / bandwidth ** 2 : score === "scaled" ? 1 / Math.sqrt(dim) : 1;
  for (let key = 0; key < scores.length; key += 1) {
    let sum = 0;
    for (let axis = 0; axis < dim; axis += 1) {
      const own = keys[key * dim + axis], asked = query[at + axis];
      sum += score === "gaussian" ? (asked - own) ** 2 : asked * own;
    }
    scores[key] = sum * factor;
  }
}

// Which keys a query may attend to: those that are on, and at its left, or nearest to it. Among equals the first.
function allowInto(allowed, query, at, keys, dim, on, { mask, nearest }) {
  for (let key = 0; key < allowed.length; key += 1) allowed[key] = on[key] && (mask !== "left" || keys[key * dim] <= query[at]) ? 1 : 0;
  if (mask !== "nearest") return;
  const distance = key => {
    let sum = 0;
    for (let axis = 0; axis < dim; axis += 1) sum += (query[at + axis] - keys[key * dim + axis]) ** 2;
    return sum;
  };
  const places = [...allowed.keys()].filter(key => allowed[key]);
  const distances = new Map(places.map(key => [key, distance(key)]));
  places.sort((a, b) => distances.get(a) - distances.get(b) || a - b);
  for (const key of places.slice(nearest)) allowed[key] = 0;
}

// Turns scores into weights where they lie. False where the rule refuses them.
const RULE = {
  softmax(scores, allowed, { temperature }) {
    let peak = -Infinity, total = 0;
    for (let key = 0; key < scores.length; key += 1) if (allowed[key] && scores[key] > peak) peak = scores[key];
    for (let key = 0; key < scores.length; key += 1) total += scores[key] = allowed[key] ? Math.exp((scores[key] - peak) / temperature) : 0;
    for (let key = 0; key < scores.length; key += 1) scores[key] /= total || 1;
    return true;
  },
  proportional(scores, allowed) {
    let total = 0;
    for (let key = 0; key < scores.length; key += 1) {
      if (!allowed[key]) scores[key] = 0;
      else if (scores[key] < 0) return false;
      total += scores[key];
    }
    for (let key = 0; key < scores.length; key += 1) scores[key] /= total || 1;
    return true;
  },
  onehot(scores, allowed) {
    let best = -1;
    for (let key = 0; key < scores.length; key += 1) if (allowed[key] && (best < 0 || scores[key] > scores[best])) best = key;
    for (let key = 0; key < scores.length; key += 1) scores[key] = key === best ? 1 : 0;
    return true;
  },
  uniform(scores, allowed) {
    let count = 0;
    for (const each of allowed) count += each;
    for (let key = 0; key < scores.length; key += 1) scores[key] = allowed[key] ? 1 / count : 0;
    return true;
  },
};

// Some queries over the same keys: `weights` of the last one, `outputs` of all, NaN where the rule refuses.
function pooled(queries, { keys, values, on, dim, valueDim }, settings) {
  const count = on.length, rows = queries.length / dim;
  const weights = new Float64Array(count), allowed = new Uint8Array(count);
  const outputs = new Float64Array(rows * valueDim);
  let answers = true;
  for (let row = 0; row < rows; row += 1) {
    allowInto(allowed, queries, row * dim, keys, dim, on, settings);
    scoresInto(weights, queries, row * dim, keys, dim, settings);
    answers = RULE[settings.rule](weights, allowed, settings);
    for (let axis = 0; axis < valueDim; axis += 1) {
      let sum = answers ? 0 : NaN;
      if (answers) for (let key = 0; key < count; key += 1) sum += weights[key] * values[key * valueDim + axis];
      outputs[row * valueDim + axis] = sum;
    }
  }
  return { weights, outputs, answers };
}

// Whether rounding decides which of the keys that a query may attend to is the best.
const CLOSE = 1e-9;
function isTied(query, points, settings) {
  const scores = new Float64Array(points.on.length), known = allowed(query, points, settings);
  scoresInto(scores, query, 0, points.keys, points.dim, settings);
  const seen = scores.filter((_, key) => known[key]), best = seen.reduce((most, each) => Math.max(most, each), -Infinity);
  return seen.filter(each => best - each <= CLOSE * (1 + Math.abs(best))).length > 1;
}

// The weights and the output of one query; null where the rule refuses its scores, and where the library has to say
// which of two keys is the best.
export function weigh(query, points, settings) {
  if (settings.rule === "onehot" && isTied(query, points, settings)) return null;
  const { weights, outputs, answers } = pooled(Float64Array.from(query), points, settings);
  return answers ? { weights: [...weights], output: [...outputs] } : null;
}

// Which keys one query may attend to, as 0 and 1.
export function allowed(query, { keys, on, dim }, settings) {
  const found = new Uint8Array(on.length);
  allowInto(found, query, 0, keys, dim, on, settings);
  return found;
}

// The middles of the cells of a picture, from its top: as the server has them.
export function middles({ low, high, shape }) {
  const axes = shape.map((count, axis) => Array.from({ length: count }, (_, place) => low[axis] + ((high[axis] - low[axis]) * (place + 0.5)) / count));
  return Float64Array.from(axes.length === 1 ? axes[0] : axes[1].reverse().flatMap(y => axes[0].flatMap(x => [x, y])));
}

// The outputs of every query of a picture, one after another.
export const field = (grid, points, settings) => pooled(middles(grid), points, settings).outputs;

export function entropy(weights) {
  return weights.reduce((sum, weight) => (weight > 0 ? sum - weight * Math.log(weight) : sum), 0);
}

// How many keys of equal weight would say as much: (Σα)² / Σα², Kish's number.
export function inEffect(weights) {
  let sum = 0, squares = 0;
  for (const weight of weights) {
    sum += weight;
    squares += weight ** 2;
  }
  return squares > 0 ? sum ** 2 / squares : 0;
}
