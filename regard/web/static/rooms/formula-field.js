// What is drawn behind the keys: the colour of every query's output, and where values let an output lie.
import { colours, LEVELS } from "../numbers.js";

// How fine a picture of the outputs may be, so that it is there within a frame while something moves.
const MOVING = 250_000, AT_REST = 2_500_000; // pairs of a query and a key
export function fineness(count, isMoving, most) {
  return Math.max(Math.min(Math.floor(Math.sqrt((isMoving ? MOVING : AT_REST) / Math.max(count, 1))), most), 16);
}

const channels = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
const SHADES = 256;
function shades() {
  const known = colours().map(channels);
  return Uint32Array.from({ length: SHADES }, (_, shade) => {
    const at = (shade / (SHADES - 1)) * LEVELS, from = Math.min(Math.floor(at), LEVELS - 1);
    const [red, green, blue] = known[from].map((each, channel) => Math.round(each + (at - from) * (known[from + 1][channel] - each)));
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
}

// Numbers as colours, a pixel each; what is no number stays clear.
export function paint(canvas, outputs, [columns, rows], [low, high]) {
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer), known = shades();
  for (let at = 0; at < pixels.length; at += 1) {
    const output = outputs[at];
    if (Number.isFinite(output)) pixels[at] = known[Math.round(Math.min(Math.max((output - low) / (high - low), 0), 1) * (SHADES - 1))];
  }
  context.putImageData(image, 0, 0);
}

export const levelOfValue = (value, [low, high]) => Math.round(Math.min(Math.max((value - low) / (high - low), 0), 1) * LEVELS);

// The corners of the smallest convex polygon around points, by Andrew's monotone chain.
export function hull(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  if (sorted.length < 3) return sorted;
  const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const half = each => {
    const chain = [];
    for (const point of each) {
      while (chain.length > 1 && turn(chain.at(-2), chain.at(-1), point) <= 0) chain.pop();
      chain.push(point);
    }
    return chain.slice(0, -1);
  };
  return [...half(sorted), ...half(sorted.reverse())];
}

// Whether a point lies in a convex polygon whose corners are in order; of fewer than three corners, on their line.
export function isWithin([x, y], corners) {
  const sides = corners.map(([x0, y0], place) => {
    const [x1, y1] = corners[(place + 1) % corners.length];
    return ((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)) / (Math.hypot(x1 - x0, y1 - y0) || 1);
  });
  const between = axis => Math.min(...corners.map(each => each[axis])) - NEAR <= [x, y][axis] && [x, y][axis] <= Math.max(...corners.map(each => each[axis])) + NEAR;
  return between(0) && between(1) && sides.every(side => (corners.length < 3 ? Math.abs(side) <= NEAR : side >= -NEAR));
}
const NEAR = 1e-9;

// Whether the cone of values, numbers or points, is all there is.
export function isEverywhere(values) {
  if (values[0]?.length === 2) return cone(values) === null;
  return values.some(([each]) => each > 0) && values.some(([each]) => each < 0);
}

// The cone from the origin that points span, as its two outer directions; null where it is the whole plane.
export function cone(points) {
  const angles = points.filter(([x, y]) => x !== 0 || y !== 0).map(([x, y]) => Math.atan2(y, x)).sort((a, b) => a - b);
  if (angles.length === 0) return [];
  const gaps = angles.map((angle, place) => (angles[place + 1] ?? angles[0] + 2 * Math.PI) - angle);
  const widest = gaps.indexOf(Math.max(...gaps));
  if (gaps[widest] < Math.PI) return null;
  return [angles[(widest + 1) % angles.length], angles[widest]].map(angle => [Math.cos(angle), Math.sin(angle)]);
}
