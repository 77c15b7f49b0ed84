// The drawing of one column: the plane (or the line with heights), its keys, the query, and the threads between them.
// Units are pixels of the screen, so that letters have one size on every screen. Parts are made once and then moved.
import { axis, drawing, element, put, shape, text, ticks, write } from "../elements.js";
import { plain, signed } from "../numbers.js";
import { cone, hull, levelOfValue, paint } from "./formula-field.js";
import { placed } from "./formula-labels.js";
import { isFree, told, valueName } from "./formula-words.js";

const THICKEST = 11, THINNEST = 0.2, TOGETHER = 60; // pixels of a thread, and of all of them
const NAMED = 16; // as many keys have their names beside them
const FAR = 1e4;
const LEGIBLE = 240; // pixels of a plane that has room for numbers at its edges

const path = points => points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const moved = ([x, y]) => `translate(${x.toFixed(1)} ${y.toFixed(1)})`;
const shown = (node, is) => put(node, { display: is ? "inline" : "none" });

let count = 0;

export class Plane {
  constructor(label) {
    this.canvas = element("canvas", { class: "outputs", "aria-hidden": "true" });
    this.clip = `formula-plane-${(count += 1)}`;
    this.layers = Object.fromEntries(["axes", "region", "arrows", "curve", "threads", "links", "keys", "query", "answer"].map(name => [name, shape("g", { class: `layer-${name}` })]));
    const { axes, query, answer, ...inside } = this.layers;
    this.scales = shape("g", { class: "scales", "aria-hidden": "true" });
    this.frame = shape("rect", { class: "frame" });
    this.window = shape("rect", {});
    this.svg = drawing(600, 600, label, shape("defs", {}, shape("clipPath", { id: this.clip }, this.window)), axes,
      shape("g", { "clip-path": `url(#${this.clip})` }, inside.region, inside.arrows, inside.curve, inside.threads, inside.links), this.scales, this.frame, inside.keys, query, answer);
    put(this.svg, { role: "application", tabindex: "0", "aria-roledescription": "plane", class: "plane-drawing" });
    this.root = element("div", { class: "plane" }, this.canvas, this.svg);
    this.parts = { keys: [], threads: [], values: [] };
    this.makeAnswer();
  }

  makeAnswer() {
    this.band = shape("path", { class: "hull" });
    this.outline = shape("path", { class: "values-hull" }); // which an output of weights of any sum may leave
    this.layers.region.append(this.band, this.outline);
    this.arrows = shape("path", { class: "arrows" });
    this.layers.arrows.append(this.arrows);
    this.curve = shape("path", { class: "outputs-curve" });
    this.layers.curve.append(this.curve);
    this.way = shape("path", { class: "way" });
    this.answer = shape("g", {}, shape("circle", { r: 9.5, class: "rim" }), shape("circle", { r: 8, class: "answer" }), text(0, 0, "", "ink strong halo", "start"));
    this.layers.answer.append(this.way, this.answer);
    this.upright = shape("path", { class: "upright" });
    this.query = shape("g", { class: "query-handle" }, shape("circle", { r: 28, class: "touch" }), shape("circle", { r: 15, class: "rim" }), shape("circle", { r: 12.5, class: "ring" }), shape("circle", { r: 9, class: "inside" }), text(17, -11, "q", "ink strong halo symbol"));
    this.layers.query.append(this.upright, this.query);
  }

  // Where everything goes, for a size in pixels; drawn anew only when that changes. Whether it did.
  lay(size, points, space) {
    const { across, up } = points.axes(space), isHeight = space === "heights";
    const told = JSON.stringify([size, across, up, space, points.names]);
    if (told === this.laid) return false;
    this.laid = told;
    this.size = size;
    const [left, bottom, edge] = isHeight ? [58, 52, 10] : [1, 1, 1];
    const high = size;
    this.x = axis(...across, left, size - edge);
    this.y = axis(...up, high - bottom, edge);
    this.box = { x: left, y: edge, width: size - edge - left, height: high - bottom - edge };
    this.svg.setAttribute("viewBox", `0 0 ${size} ${high}`);
    put(this.window, this.box);
    put(this.frame, { ...this.box, rx: isHeight ? 0 : 6 });
    Object.assign(this.canvas.style, {
      left: `${(100 * left) / size}%`, top: `${(100 * edge) / high}%`, width: `${(100 * this.box.width) / size}%`, height: `${(100 * this.box.height) / high}%`,
    });
    this.scales.replaceChildren();
    this.layers.axes.replaceChildren(...(isHeight ? this.axesOfHeights(points, across, up) : this.axesOfPlane(across, up)));
    return true;
  }

  axesOfPlane(across, up) {
    const { x, y, width, height } = this.box, end = y + height, count = this.size < 300 ? 3 : 6;
    // Inside of the frame, but for its corners.
    const within = ([low, high]) => ticks(low, high, count).filter(each => each - low > 0.1 * (high - low) && high - each > 0.05 * (high - low));
    if (this.size >= LEGIBLE) this.scales.replaceChildren(
      shape("path", { class: "tick", d: [...within(across).map(each => `M${this.x(each)} ${end}v-5`), ...within(up).map(each => `M${x} ${this.y(each)}h5`)].join("") }),
      ...within(across).map(each => text(this.x(each), end - 8, plain(each), "ink small number halo", "middle")),
      ...within(up).map(each => text(x + 8, this.y(each) + 4, plain(each), "ink small number halo")));
    return [shape("path", { class: "cross", d: `M${x} ${this.y(0)}h${width}M${this.x(0)} ${y}v${height}` })];
  }

  axesOfHeights({ names }, across, up) {
    const { x, y, width, height } = this.box, end = y + height;
    return [
      ...ticks(...up, 5).flatMap(each => [shape("path", { class: "cross", d: `M${x} ${this.y(each)}h${width}` }), text(x - 8, this.y(each) + 4, plain(each, 5), "quiet small number", "end")]),
      ...ticks(...across, 6).map(each => text(this.x(each), end + 27, plain(each), "quiet small number", "middle")),
      text(x + width, end + 45, names.key, "quiet", "end"), text(x + 9, y + 16, names.value, "quiet halo"),
    ];
  }

  at = ([across, up]) => [this.x(across), this.y(up)];
  back = ([x, y]) => [this.x.back(x), this.y.back(y)];

  // What lies under a point of the drawing: the nearest handle within reach.
  under([x, y], points, space, reach) {
    let found = null, least = reach;
    const look = (handle, [px, py], handicap = 0) => {
      const distance = Math.hypot(x - px, y - py) + handicap;
      if (distance < least) [found, least] = [handle, distance];
    };
    if (space !== "heights") look({ kind: "query" }, this.at(points.query), -4);
    points.keys.forEach((_, index) => {
      look({ kind: "key", index }, this.at(points.placeOf({ kind: "key", index }, space)));
      if (space === "points" && !points.isSelf) look({ kind: "value", index }, this.at(points.placeOf({ kind: "value", index }, space)), -1);
    });
    return found;
  }

  // As many parts as there are keys.
  fit({ keys }) {
    const { keys: made, threads, values } = this.parts;
    while (made.length < keys.length) {
      const node = shape("g", { class: "key-handle" }, shape("circle", { class: "touch" }), shape("circle", { class: "rim" }), shape("circle", { class: "dot" }), text(0, 0, "", "ink halo symbol"));
      const thread = shape("line", { class: "thread" });
      const value = shape("g", { class: "value-handle" }, shape("circle", { r: 20, class: "touch" }), shape("path", { class: "link" }), shape("rect", { x: -6.5, y: -6.5, width: 13, height: 13, rx: 3, class: "value" }), text(10, -8, "", "ink halo symbol"));
      made.push({ node });
      threads.push(thread);
      values.push(value);
      this.layers.keys.append(node);
      this.layers.threads.append(thread);
      this.layers.links.append(value);
    }
    while (made.length > keys.length) [made.pop().node, threads.pop(), values.pop()].forEach(each => each.remove());
  }

  // `edition` changes with all but the query; `allowed` says which keys the query may attend to, null: all that are on.
  draw(points, space, result, { edition, kind, allowed, scale }) {
    this.fit(points);
    if (this.edition !== edition) this.drawKeys(points, space);
    if (this.edition !== edition || this.kind !== kind) this.drawRegion(points, space, kind);
    Object.assign(this, { edition, kind });
    this.drawMask(allowed);
    const isHeight = space === "heights", isPoint = space === "points";
    const output = result?.output ?? null, isKnown = output !== null && output.every(Number.isFinite);
    const asked = this.at(points.query), ground = [asked[0], this.box.y + this.box.height];
    const answer = isPoint && isKnown ? this.at(output) : isHeight && isKnown ? [asked[0], this.y(output[0])] : null;
    this.drawThreads(result, isHeight ? answer ?? ground : asked, scale);
    shown(this.answer, answer !== null);
    shown(this.way, answer !== null);
    shown(this.upright, isHeight);
    if (answer) this.drawAnswer(answer, told(output), isPoint ? asked : null);
    if (isHeight) put(this.upright, { d: `M${asked[0].toFixed(1)} ${this.box.y}V${ground[1]}` });
    const level = isKnown && space === "colours" ? levelOfValue(output[0], points.extent.c) : null;
    put(this.query, { transform: moved(isHeight ? ground : asked), class: points.chosen.kind === "query" ? "query-handle is-chosen" : "query-handle" });
    put(this.query.children[3], { fill: level === null ? "var(--mark)" : `var(--w${level})` });
  }

  drawKeys(points, space) {
    const many = points.keys.length, radius = many > 80 ? 4.5 : many > NAMED ? 6 : this.size < 450 ? 7.5 : 9;
    this.ends = points.keys.map((_, index) => this.at(points.placeOf({ kind: "key", index }, space)));
    const names = points.keys.map((_, index) => (many > NAMED ? "" : points.nameOf(index)));
    const places = many > NAMED ? [] : placed(this.ends.map(([x, y], index) => ({ x, y, radius, words: names[index] })), this.box);
    points.keys.forEach((each, index) => {
      const { node } = this.parts.keys[index], [x, y] = this.ends[index], [touch, rim, dot, label] = node.children;
      const isChosen = points.chosen.kind === "key" && points.chosen.index === index;
      put(node, { transform: moved([x, y]), class: `key-handle${each.on ? "" : " is-off"}${isChosen ? " is-chosen" : ""}` });
      put(touch, { r: radius + 11 });
      put(rim, { r: radius + 2 });
      put(dot, { r: radius, fill: space === "colours" ? `var(--w${levelOfValue(each.c, points.extent.c)})` : "var(--key)" });
      put(label, places[index] ?? {});
      write(label, names[index]);
    });
    const isApart = space === "points" && !points.isSelf;
    points.keys.forEach((each, index) => {
      const value = this.parts.values[index];
      shown(value, isApart);
      if (!isApart) return;
      const place = this.at([each.u, each.v]), [kx, ky] = this.ends[index], [, link, , label] = value.children;
      put(value, { transform: moved(place), class: `value-handle${points.chosen.kind === "value" && points.chosen.index === index ? " is-chosen" : ""}` });
      put(link, { d: `M${(kx - place[0]).toFixed(1)} ${(ky - place[1]).toFixed(1)}L0 0` });
      write(label, many > NAMED ? "" : valueName(points, index));
    });
  }

  // Keys that the query may not attend to are faint.
  drawMask(allowed) {
    this.parts.keys.forEach(({ node }, index) => put(node, { opacity: !allowed || allowed[index] ? 1 : 0.35 }));
  }

  drawThreads(result, [x, y], { most, total }) {
    const weights = result?.weights ?? [];
    const scale = most ? Math.min(THICKEST / most, TOGETHER / total) : 0;
    this.parts.threads.forEach((thread, index) => {
      const weight = weights[index] ?? 0, wide = scale * Math.abs(weight), isShown = wide > THINNEST;
      put(thread, { display: isShown ? "inline" : "none" });
      if (!isShown) return;
      const [kx, ky] = this.ends[index];
      put(thread, { x1: x.toFixed(1), y1: y.toFixed(1), x2: kx.toFixed(1), y2: ky.toFixed(1), "stroke-width": wide.toFixed(2), class: weight < 0 ? "thread is-below" : "thread" });
    });
  }

  // The output: where it lies from the query in the plane; over a line, how high it is, read at the side.
  drawAnswer(place, words, from) {
    // An output may lie beyond the picture: it is shown at the edge then.
    const { x, y, width, height } = this.box;
    const inside = [Math.min(Math.max(place[0], x), x + width), Math.min(Math.max(place[1], y), y + height)];
    const isInside = inside[0] === place[0] && inside[1] === place[1], label = this.answer.children[2];
    put(this.answer, { transform: moved(inside) });
    write(label, isInside ? words : `${words}, beyond the picture`);
    if (from) {
      // On the far side of the query, unless it would be cut there.
      const isRight = inside[0] > x + 0.66 * width, isAbove = inside[1] > y + height - 30 || (from[1] - inside[1] > 14 && inside[1] > y + 30);
      put(label, { x: isRight ? -13 : 13, y: isAbove ? -14 : 23, "text-anchor": isRight ? "end" : "start" });
      put(this.way, { d: path([from, inside]) });
    } else {
      const isRight = inside[0] < x + 0.3 * width, side = isRight ? x + width : x;
      put(label, { x: (isRight ? side - 8 : side + 8) - inside[0], y: inside[1] < y + 40 ? 17 : -7, "text-anchor": isRight ? "end" : "start" });
      put(this.way, { d: path([[side, inside[1]], inside]) });
    }
  }

  // Where the values let an output lie: their hull, their cone, nothing for weights of any sign.
  drawRegion(points, space, kind) {
    const on = points.keys.map((_, index) => index).filter(index => points.keys[index].on);
    const values = on.map(index => points.valueOf(index, space));
    shown(this.band, space !== "colours" && kind !== "linear" && values.length > 0);
    shown(this.outline, space !== "colours" && isFree(kind) && values.length > 0);
    if (space === "colours" || values.length === 0) return;
    if (isFree(kind)) put(this.outline, { d: space === "heights" ? this.bandOf(values.map(([each]) => each), "convex") : this.shapeOf(values, "convex") });
    put(this.band, { class: kind === "conic" ? "hull cone" : "hull", d: space === "heights" ? this.bandOf(values.map(([each]) => each), kind) : this.shapeOf(values, kind) });
  }

  bandOf(values, kind) {
    const { x, width } = this.box;
    const [least, most] = kind === "conic" ? [values.some(each => each < 0) ? -Infinity : 0, values.some(each => each > 0) ? Infinity : 0] : [Math.min(...values), Math.max(...values)];
    const inside = each => Math.min(Math.max(each, -FAR), FAR);
    const [top, bottom] = [inside(this.y(most)), inside(this.y(least))];
    return `M${x} ${top}H${x + width}V${bottom}H${x}Z`;
  }

  shapeOf(values, kind) {
    if (kind !== "conic") return `${path(hull(values).map(this.at))}Z`;
    const rays = cone(values), origin = this.at([0, 0]);
    const { x, y, width, height } = this.box;
    if (rays === null) return `M${x} ${y}h${width}v${height}h${-width}Z`;
    return `${path([origin, ...rays.map(([across, up]) => [origin[0] + FAR * across, origin[1] - FAR * up])])}Z`;
  }

  // The outputs of all queries: colours behind the plane, arrows towards them, or the curve over the line.
  drawField(outputs, grid, points, space) {
    shown(this.arrows, outputs !== null && space === "points");
    shown(this.curve, outputs !== null && space === "heights");
    this.canvas.hidden = outputs === null || space !== "colours";
    if (outputs === null) return;
    if (space === "colours") paint(this.canvas, outputs, grid.shape, points.extent.c);
    else if (space === "heights") this.drawCurve(outputs, grid);
    else this.drawArrows(outputs, grid);
  }

  drawCurve(outputs, { low, high, shape: [columns] }) {
    let line = "";
    outputs.forEach((output, place) => {
      const isKnown = Number.isFinite(output), isFirst = !Number.isFinite(outputs[place - 1]);
      if (isKnown) line += `${isFirst ? "M" : "L"}${this.x(low[0] + ((high[0] - low[0]) * (place + 0.5)) / columns).toFixed(1)} ${Math.min(Math.max(this.y(output), -FAR), FAR).toFixed(1)}`;
    });
    this.curve.setAttribute("d", line);
  }

  drawArrows(outputs, { low, high, shape: [columns, rows] }) {
    const longest = (0.62 * this.box.width) / columns;
    let lines = "";
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const at = 2 * (row * columns + column);
        const [x, y] = this.at([low[0] + ((high[0] - low[0]) * (column + 0.5)) / columns, high[1] - ((high[1] - low[1]) * (row + 0.5)) / rows]);
        const [dx, dy] = [this.x(outputs[at]) - x, this.y(outputs[at + 1]) - y], length = Math.hypot(dx, dy);
        if (!(length > 1)) continue;
        const size = Math.min(longest, length) / length, [ex, ey] = [dx * size, dy * size];
        const [hx, hy] = [ex * 0.3, ey * 0.3];
        lines += `M${x.toFixed(1)} ${y.toFixed(1)}l${ex.toFixed(1)} ${ey.toFixed(1)}m${(-hx - hy * 0.6).toFixed(1)} ${(-hy + hx * 0.6).toFixed(1)}l${(hx + hy * 0.6).toFixed(1)} ${(hy - hx * 0.6).toFixed(1)}l${(-hx + hy * 0.6).toFixed(1)} ${(-hy - hx * 0.6).toFixed(1)}`;
      }
    }
    this.arrows.setAttribute("d", lines);
  }
}

// What the handles are called, for who does not see them.
export function spoken(points, space, { kind, index }, result) {
  const place = points.placeOf({ kind, index }, space).map(each => signed(Number(each.toPrecision(4))));
  if (kind === "query") return `The query at ${space === "heights" ? place[0] : place.join(", ")}`;
  const weight = result?.weights?.[index];
  const said = `${kind === "value" ? "The value of key" : "Key"} ${points.titleOf(index)} at ${place.join(", ")}`;
  const value = space === "colours" ? `, value ${plain(points.keys[index].c)}` : "";
  return `${said}${value}${points.keys[index].on ? "" : ", switched off"}${Number.isFinite(weight) ? `, weight ${isFree(result.kind) ? plain(weight) : `${(100 * weight).toFixed(1)} percent`}` : ""}`;
}
