// The picture of a table: its rows, the curve of all outputs with its band, and the query with its answer.
import { axis, drawing, shape, text } from "../elements.js";
import { levelOf, largestOf, percent } from "../numbers.js";
import { cut } from "../weights.js";
import { marks } from "./table-axes.js";

const TOP = 26, RIGHT = 16, BOTTOM = 48;
const DENSE = 5; // shades of cells
const LETTER = 7, SAMPLE = 26, ENTRY = 18, SHARE = 7; // of the legend: a letter, a line, how far its rows are apart, and letters for a share

const wide = marks => Math.max(...marks.map(({ words }) => words.length), 1) * 6.6;

// Which line is which: entries side by side, on as many rows as they need.
function entries(names, width) {
  let x = 0, row = 0;
  return names.map(each => {
    const name = cut(each, 24), wide = SAMPLE + 6 + ([...name].length + SHARE) * LETTER + 14;
    if (x > 0 && x + wide > width) [x, row] = [0, row + 1];
    const found = { name, x, row };
    x += wide;
    return found;
  });
}

// From numbers to a path, which begins anew after a gap.
function path(at, values, across, up) {
  let drawn = "", begins = true;
  at.forEach((each, place) => {
    const value = values[place];
    if (value === null || !Number.isFinite(value)) {
      begins = true;
      return;
    }
    drawn += `${begins ? "M" : "L"}${across(each).toFixed(1)} ${up(value).toFixed(1)}`;
    begins = false;
  });
  return drawn;
}

// The band between values − spreads and values + spreads, a polygon for each run without a gap.
function band(at, values, spreads, across, up, [low, high]) {
  const runs = [[]];
  at.forEach((each, place) => {
    if (values[place] === null || spreads[place] === null) runs.push([]);
    else runs.at(-1).push([across(each), up(Math.min(values[place] + spreads[place], high)), up(Math.max(values[place] - spreads[place], low))]);
  });
  return runs.filter(run => run.length > 1).map(run => {
    const above = run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`), below = run.map(([x, , y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).reverse();
    return `M${[...above, ...below].join("L")}Z`;
  }).join("");
}

// `inset` is what part of a column stays empty on each side.
function cellsDrawn({ shape: [columns, rows], counts }, { from, to, low, high }, across, up, inset) {
  const largest = largestOf(counts), paths = Array.from({ length: DENSE }, () => "");
  const w = (across(to) - across(from)) / columns, h = (up(low) - up(high)) / rows;
  counts.forEach((count, place) => {
    if (!count) return;
    const shade = Math.min(Math.floor(DENSE * (count / largest) ** 0.5), DENSE - 1), column = Math.floor(place / rows), row = place % rows;
    const wide = w * (1 - 2 * inset) + 0.3;
    paths[shade] += `M${(across(from) + (column + inset) * w).toFixed(1)} ${(up(low) - (row + 1) * h).toFixed(1)}h${wide.toFixed(1)}v${(h + 0.3).toFixed(1)}h${(-wide).toFixed(1)}z`;
  });
  return paths.map((d, shade) => (d ? shape("path", { d, class: `cells cells-${shade}` }) : null));
}

// What the picture is made of; all that stays while the query moves is drawn once, what moves is drawn by `query`.
export class Picture {
  constructor(given, width) {
    Object.assign(this, given, { width, height: Math.round(Math.min(Math.max(width * 0.52, 280), 470)) });
    const { along, points } = this;
    this.isShares = points.lanes !== null;
    [this.from, this.to] = along.role === "line" ? widened(along.low, along.high) : [-0.5, points.columns.length - 0.5];
    [this.low, this.high] = this.isShares ? [0, 1] : this.heights();
    this.legend = this.isShares ? entries(points.lanes, width) : [];
    this.top = TOP + (this.legend.length ? (this.legend.at(-1).row + 1) * ENTRY + 10 : 0);
    this.height += this.top - TOP;
    this.upMarks = this.isShares ? [0, 0.25, 0.5, 0.75, 1].map(at => ({ at, words: `${100 * at}%` })) : marks(this.value, this.low, this.high, this.height > 340 ? 6 : 4);
    this.left = Math.max(wide(this.upMarks) + 12, 36);
    this.across = axis(this.from, this.to, this.left, width - RIGHT);
    this.up = axis(this.low, this.high, this.height - BOTTOM, this.top);
    this.called = [];
    this.moving = shape("g", {});
    this.svg = drawing(width, this.height, this.label(), ...this.frame(), ...this.rows(), ...this.curves(), this.moving);
  }

  // From the lowest to the highest of what is drawn: rows, and the curve's own ends.
  heights() {
    const { points, curve } = this;
    const drawn = (curve?.values ?? []).filter(each => each !== null);
    const [low, high] = [Math.min(points.low, ...drawn), Math.max(points.high, ...drawn)];
    const margin = 0.05 * (high - low) || Math.abs(low) * 0.05 || 1;
    return [low - margin, high + margin];
  }

  label() {
    const { along, value, points } = this;
    return `${points.n.toLocaleString("en")} rows: ${along.name} across, ${value.name} up, with the output for every query as a curve`;
  }

  frame() {
    const { width, height, left, across, up, along, value, points } = this, base = height - BOTTOM;
    const room = width - left - RIGHT;
    const below = along.role === "line" ? marks(along, this.from, this.to, Math.max(Math.floor(room / 80), 2))
      : points.columns.map((code, at) => ({ at, words: along.nameOf(code) }));
    // Of categories that stand close every second, third … has its name.
    const each = room / below.length / LETTER, longest = Math.min(Math.max(...below.map(({ words }) => words.length), 1) + 1, 8);
    const stride = along.role === "line" ? 1 : Math.max(Math.ceil(longest / each), 1), letters = along.role === "line" ? 99 : Math.max(Math.floor(each * stride), 2);
    return [
      ...this.upMarks.map(({ at, words }) => shape("g", {},
        shape("path", { d: `M${left} ${up(at).toFixed(1)}H${width - RIGHT}`, class: "faint" }), text(left - 8, up(at) + 4, words, "quiet small number", "end"))),
      ...below.map(({ at, words }, place) => shape("g", {},
        shape("path", { d: `M${across(at).toFixed(1)} ${base}v4`, class: "line" }),
        text(along.role === "line" ? Math.min(Math.max(across(at), left), width - RIGHT) : across(at), base + 18, place % stride ? "" : cut(words, letters), "quiet small number", "middle"))),
      shape("path", { d: `M${left} ${base}H${width - RIGHT}`, class: "line" }),
      text((left + width - RIGHT) / 2, height - 6, cut(along.name, 48), "quiet", "middle"),
      text(0, 14, cut(this.isShares ? `probability of ${value.name}` : value.name, Math.floor(width / LETTER)), "quiet"),
      ...this.legend.flatMap(({ name, x, row }, place) => {
        const y = TOP + (row + 0.5) * ENTRY;
        const called = (this.called[place] = text(x + SAMPLE + 6, y + 4, name, "ink small"));
        return [shape("path", { d: `M${x} ${y}h${SAMPLE}`, class: `curve share share-${place}` }), called];
      }),
    ];
  }

  rows() {
    const { points, across, up } = this;
    if (points.cells) return cellsDrawn(points.cells, points, across, up, this.along.role === "line" ? 0 : 0.18);
    if (!points.points) return [];
    const [xs, ys] = points.points;
    this.placeOf = new Map(points.points[2].map((row, place) => [row, place]));
    const d = xs.map((x, place) => `M${this.jittered(x, place).toFixed(1)} ${up(ys[place]).toFixed(1)}h0`).join("");
    return [shape("path", { d, class: xs.length > 400 ? "points is-many" : "points" })];
  }

  // Rows of one category stand beside each other.
  jittered(x, place) {
    const gap = this.along.role === "line" ? 0 : ((((place * 0.618034) % 1) - 0.5) * 0.44);
    return this.across(x + gap);
  }

  curves() {
    const { curve, across, up, isShares } = this;
    if (!curve) return [];
    if (this.along.role !== "line") return this.columnsDrawn();
    if (isShares) {
      return curve.shares.map((shares, place) => shape("path", { d: path(curve.at, shares, across, up), class: `curve share share-${place}` }));
    }
    return [
      shape("path", { d: band(curve.at, curve.values, curve.spreads, across, up, [this.low, this.high]), class: "band" }),
      shape("path", { d: path(curve.at, curve.values, across, up), class: "curve" }),
    ];
  }

  // Over categories there is no curve, but an output for each.
  columnsDrawn() {
    const { curve, points, across, up } = this;
    return points.columns.flatMap((code, column) => {
      const place = curve.at.indexOf(code);
      if (place < 0) return [];
      const [x0, x1] = [across(column - 0.32), across(column + 0.32)];
      if (this.isShares) return curve.shares.map((shares, line) => shares[place] === null ? null : shape("path", { d: `M${x0} ${up(shares[place])}H${x1}`, class: `curve share share-${line}` }));
      const [value, spread] = [curve.values[place], curve.spreads[place]];
      if (value === null) return [];
      const top = each => up(Math.min(each + spread, this.high));
      return [
        spread ? shape("rect", { x: x0, y: top(value), width: x1 - x0, height: Math.max(up(Math.max(value - spread, this.low)) - top(value), 0), class: "band" }) : null,
        shape("path", { d: `M${x0} ${up(value)}H${x1}`, class: "curve" }),
      ];
    });
  }

  // Where a place of the picture lies on the key's line.
  back(x) {
    return Math.min(Math.max(this.across.back(x), this.from), this.to);
  }

  // `at` is where the query is, `answer` what is known of it, `width` how far it hears.
  query(at, answer, width) {
    const { across, up, height, left, top } = this, base = height - BOTTOM, x = across(at);
    const parts = [shape("path", { d: `M${x.toFixed(1)} ${top}V${base}`, class: "mark query-line" })];
    if (width !== null && this.along.role === "line") {
      const [x0, x1] = [at - width, at + width].map(each => Math.min(Math.max(across(each), left), this.width - RIGHT));
      parts.push(shape("path", { d: `M${x0.toFixed(1)} ${base}H${x1.toFixed(1)}`, class: "mark reach" }, shape("title", {}, "one bandwidth to each side of the query")));
    }
    if (answer) parts.push(...this.heavy(answer), ...this.output(answer));
    this.name(answer?.output.lanes ?? null);
    parts.push(shape("path", { d: `M${x.toFixed(1)} ${base - 1}l6 9h-12z`, class: "mark-dot" }));
    this.moving.replaceChildren(...parts.flat().filter(each => each !== null));
  }

  // Nothing of a query that lies on no place of the picture.
  clear() {
    this.moving.replaceChildren();
    this.name(null);
  }

  // The legend says what each line has at the query.
  name(shares) {
    this.legend.forEach(({ name }, place) => { this.called[place].textContent = shares ? `${name} ${percent(shares[place] ?? 0)}` : name; });
  }

  // The rows behind the answer: their area is their weight, and all of them together about the same however many they are.
  heavy(answer) {
    const { points, up } = this;
    if (this.isShares || answer.report.lines.length === 0) return []; // no place up, or none that stands out
    const largest = largestOf(answer.weights), most = Math.min(Math.max(24 / Math.sqrt(answer.effective), 3), 7.5);
    return answer.rows.flatMap((row, place) => {
      const height = answer.heights[place], [x, y] = [answer.across[place], height], weight = answer.weights[place];
      if (x === null || y === null || x < this.from || x > this.to || y < this.low || y > this.high || weight < 0.01 * largest) return [];
      const at = this.placeOf?.get(row), r = Math.max(most * Math.sqrt(weight / largest), 2);
      return [shape("circle", { cx: points.points && at !== undefined ? this.jittered(x, at) : this.across(x), cy: up(y), r, class: "heavy", fill: `var(--w${Math.max(levelOf(weight, largest), 6)})` }, shape("title", {}, percent(weight)))];
    });
  }

  output(answer) {
    const { across, up } = this, x = across(answer.at), { number, spread, lanes } = answer.output;
    if (this.isShares) {
      return (lanes ?? []).map(share => shape("circle", { cx: x, cy: up(share), r: 5.5, class: "output" }));
    }
    if (number === null) return [];
    return [
      spread ? shape("path", { d: `M${x.toFixed(1)} ${up(Math.min(number + spread, this.high)).toFixed(1)}V${up(Math.max(number - spread, this.low)).toFixed(1)}`, class: "spread" }) : null,
      shape("circle", { cx: x, cy: up(number), r: 7, class: "output" }),
    ];
  }
}

function widened(low, high) {
  const margin = 0.02 * (high - low) || Math.abs(low) * 0.02 || 1;
  return [low - margin, high + margin];
}
