// The room of the formula: keys are points, a query is dragged among them, and all that follows is seen.
import { button, checkbox, choice, panel, select, slider } from "../controls.js";
import { element } from "../elements.js";
import { levelOfValue } from "./formula-field.js";
import { onPaper, onTheme, plain } from "../numbers.js";
import { fail, say, tell } from "../said.js";
import { saving } from "../saving.js";
import { ask } from "../server.js";
import { Column } from "./formula-column.js";
import { controls } from "./formula-controls.js";
import { listen } from "./formula-hands.js";
import { data, picture, rows } from "./formula-picture.js";
import { spoken } from "./formula-plane.js";
import { Points, PRESETS } from "./formula-points.js";
import { read, write } from "./formula-state.js";

const REST = 140; // milliseconds after which what was dragged lies still
const SPACES = [["colours", "Colours"], ["points", "Points"], ["heights", "Heights"]];
const MASKS = [["all", "Every key"], ["left", "Keys at the query's left"], ["nearest", "The nearest keys"]];
const HELP = "Drag the query q or a key, or click where the query should go. Double click adds a key. On the keyboard: arrows move what is chosen, N and P choose the next and the one before, Q the query, A adds a key, Delete removes it, M switches it off, Ctrl Z takes the last change of keys back.";

let kept = null; // the points as they were left, and of which preset: while the page is open, and nowhere else

const left = count => (count === 1 ? "1 key is left" : `${count} keys are left`);

class Room {
  constructor(root, { state, keep }) {
    this.keep = keep;
    this.edition = 0; // of all but the query
    this.isSizeNew = true;
    this.aborting = new AbortController();
    this.signal = this.aborting.signal;
    this.take(read(state));
    this.points = kept?.preset === this.preset ? kept.points : new Points(this.preset);
    this.points.isSelf = this.isSelf;
    this.columns = [new Column("The plane", this), new Column("The plane, compared", this)];
    this.build(root);
    for (const column of this.columns) listen(column.plane, this);
    this.watchers = [onTheme(() => this.changed("keys")), onPaper(() => { for (const column of this.shownColumns()) column.drawOutputs(); })];
    const sizes = new ResizeObserver(() => this.changed("size"));
    for (const { plane, list } of this.columns) for (const each of [plane.root, list]) sizes.observe(each);
    this.watchers.push(() => sizes.disconnect());
    this.changed("keys");
  }

  take({ preset, space, isSelf, shared, columns }) {
    Object.assign(this, { preset, space, isSelf, shared, settings: columns });
  }

  settingsOf = column => this.settings[this.columns?.indexOf(column) === 1 ? 1 : 0];
  levelOf = value => levelOfValue(value, this.points.extent.c);
  widths() {
    const [low, high] = this.points.extent.x;
    return { low: (high - low) / 150, high: 2 * (high - low) };
  }

  // What a column asks of the server.
  question = settings => {
    const { points, space, shared } = this, places = [...points.keys.keys()];
    return {
      query: points.queryIn(space), keys: places.map(each => points.coordinatesOf(each, space)), values: places.map(each => points.valueOf(each, space)),
      on: points.keys.map(({ on }) => on), mask: shared.mask, nearest: shared.nearest, ...settings,
    };
  };

  build(root) {
    this.stage = element("div", { class: "stage" },
      element("h1", {}, "Move the query, and see the weights move"),
      element("p", { class: "lead" }, "A score compares the query q with each key k, a rule turns scores into weights α, and the output is Σ α·v."),
      element("div", { class: "columns" }, this.columns.map(({ root: each }) => each)));
    this.saving = saving("formula", {
      picture: () => this.handed(picture), rows: () => this.handed(rows), data: () => this.handed(data),
      python: async () => (await Promise.all(this.shownColumns().map(each => ask("formula", "python", this.question(this.settingsOf(each)), this.signal)))).map(({ python }) => python).join("\n"),
    });
    this.stage.append(this.saving);
    this.help = element("p", { class: "caption help" }, HELP);
    this.stage.append(this.help);
    this.side = element("div", { class: "side" });
    root.append(this.stage, this.side);
    this.buildSide();
  }

  buildSide() {
    this.begins = select({ label: "Begin with", options: Object.entries(PRESETS).map(([name, { words }]) => [name, words]), value: this.preset, onchange: each => this.begin(each) });
    this.again = button("Begin again", () => this.beginAgain(), { class: "again" });
    this.begins.input.before(this.again);
    this.spaces = choice({ label: "Values are", options: SPACES, value: this.space, onchange: each => this.set(() => { this.space = each; this.points.chosen = { kind: "query" }; }) });
    this.selves = checkbox({ label: "The keys themselves are the values", value: this.isSelf, onchange: each => this.set(() => { this.isSelf = this.points.isSelf = each; this.points.chosen = { kind: "query" }; }) });
    this.first = controls("Score and rule", this, this.columns[0]);
    this.compares = checkbox({ label: "Compare with another", value: this.shared.compare, onchange: each => this.set(() => { this.shared.compare = each; }) });
    this.second = controls("Compared with", this, this.columns[1]);
    this.masks = select({ label: "The query may attend to", options: MASKS, value: this.shared.mask, onchange: each => this.set(() => { this.shared.mask = each; }) });
    this.nearest = slider({ label: "So many", low: 1, high: 12, steps: 11, value: this.shared.nearest, say: each => String(Math.round(each)), onchange: each => this.set(() => { this.shared.nearest = Math.round(each); }, "settings", true) });
    this.fields = checkbox({ label: "Show the output of every query", value: this.shared.field, onchange: each => this.set(() => { this.shared.field = each; }) });
    this.side.append(panel(null, this.begins.root, this.spaces.root, this.selves.root), this.first.root, panel(null, this.compares.root), this.second.root,
      panel("Mask and picture", this.masks.root, this.nearest.root, this.fields.root), this.buildKey());
    this.follow();
  }

  buildKey() {
    this.keyName = element("output", {}, "");
    const [low, high] = this.points.extent.c;
    this.keyValue = slider({ label: "Its value", low, high, value: low, say: each => plain(each, 5), onchange: each => this.set(() => this.points.setValue(this.points.chosen.index, each), "keys", true) });
    this.keyValue.input.addEventListener("change", () => this.points.endGesture());
    this.isOn = checkbox({ label: "Takes part", value: true, onchange: each => this.set(() => this.points.toggle(this.points.chosen.index, each), "keys") });
    this.removing = button("Delete", () => this.remove());
    return panel("Keys", element("div", { class: "stepper" }, button("‹", () => this.step(-1), { "aria-label": "Choose the one before" }), this.keyName, button("›", () => this.step(1), { "aria-label": "Choose the next" })),
      this.keyValue.root, this.isOn.root, element("div", { class: "buttons" }, button("Add a key", () => this.add()), this.removing));
  }

  set(change, what = "settings", isMoving = false) {
    change();
    this.follow();
    this.changed(what, isMoving);
  }

  // The controls say what is set.
  follow() {
    const { points, space, shared } = this, { chosen } = points, isKey = chosen.kind !== "query";
    this.begins.set(this.preset);
    this.again.disabled = !points.isChanged;
    this.spaces.set(space);
    this.selves.set(this.isSelf);
    this.selves.root.hidden = space !== "points";
    this.compares.set(shared.compare);
    this.second.root.hidden = this.columns[1].root.hidden = !shared.compare;
    this.stage.classList.toggle("is-compared", shared.compare);
    this.masks.set(shared.mask);
    this.nearest.set(shared.nearest);
    this.nearest.root.hidden = shared.mask !== "nearest";
    this.fields.set(shared.field);
    this.showChosen(isKey ? points.keys[chosen.index] : null);
  }

  showChosen(key) {
    const { points, space } = this, { chosen } = points;
    const name = key === null ? "The query q" : `${chosen.kind === "value" ? "Value of " : "Key "}${points.nameOf(chosen.index)}`;
    if (this.keyName.textContent !== name) this.keyName.textContent = name;
    this.removing.disabled = key === null || points.keys.length < 2;
    this.isOn.root.hidden = key === null;
    this.keyValue.root.hidden = key === null || space === "points";
    if (key === null) return;
    this.isOn.set(key.on);
    this.keyValue.set(key.c);
  }

  begin(preset) {
    this.take(read({ preset }));
    this.start();
  }

  start() {
    this.points.begin(this.preset);
    this.points.isSelf = this.isSelf;
    this.renew();
    // Who chooses by keyboard goes on from there.
    this.begins.input.focus();
  }

  beginAgain() {
    this.points.beginAgain();
    this.follow();
    this.changed("keys", false, "The points are as in the beginning.");
    this.begins.input.focus(); // a button that is disabled loses the keyboard
  }

  undo() {
    const { points } = this;
    if (!points.undo()) return say("There is no change to undo.");
    if (points.chosen.kind === "value" && (this.space !== "points" || points.isSelf)) points.chosen = { kind: "query" };
    this.follow();
    this.changed("keys", false, "The last change is undone.");
  }

  // The controls anew: what can be set is another, where other keys are shown.
  renew() {
    this.side.replaceChildren();
    this.buildSide();
    this.isSizeNew = true; // there may be a column more, or fewer
    this.changed("keys");
  }

  choose(chosen) {
    this.points.endGesture();
    this.points.chosen = chosen;
    this.follow();
    this.changed("chosen");
  }

  step(by) {
    this.points.step(by, this.space);
    this.follow();
    this.changed("chosen");
    say(spoken(this.points, this.space, this.points.chosen, this.columns[0].result));
  }

  // At a place of the picture, or beside the query.
  add(place = null) {
    const [across, up] = this.points.placeOf({ kind: "query" }, this.space), { across: ends, up: heights } = this.points.axes(this.space);
    const beside = [across + (ends[1] - ends[0]) / 12, this.space === "heights" ? (heights[0] + heights[1]) / 2 : up];
    if (!this.points.add(place ?? beside, this.space)) return fail(new Error("There are 400 keys: delete one before you add another."));
    this.follow();
    this.changed("keys", false, `${this.points.called(this.points.chosen.index)} is added.`);
  }

  remove() {
    const { chosen } = this.points, called = chosen.kind === "query" ? null : this.points.called(chosen.index);
    if (!this.points.remove()) return;
    this.follow();
    this.changed("keys", false, `${called} is deleted; ${left(this.points.keys.length)}.`);
  }

  toggle() {
    const { chosen, keys } = this.points;
    if (chosen.kind === "query") return;
    const key = keys[chosen.index];
    this.points.toggle(chosen.index);
    this.follow();
    this.changed("keys", false, `${this.points.called(chosen.index)} is switched ${key.on ? "on" : "off"}.`);
  }

  move(handle, place) {
    this.points.move(handle, place, this.space);
    this.changed(handle.kind === "query" ? "query" : "keys", true);
  }

  // The largest weight that is seen, by its size, and the largest sum: columns that are compared have one scale.
  scale() {
    let most = 0, total = 0;
    for (const { result } of this.shownColumns()) {
      let sum = 0;
      for (const weight of result?.weights ?? []) if (Number.isFinite(weight)) [most, sum] = [Math.max(most, Math.abs(weight)), sum + Math.abs(weight)];
      total = Math.max(total, sum);
    }
    return { most, total };
  }

  shownColumns = () => (this.shared.compare ? this.columns : this.columns.slice(0, 1));

  // What has changed: the query, keys, settings, what is chosen, or the size. Drawn once a frame.
  // `news` is told to who hears the page, with what came of it.
  changed(what, isMoving = false, news = "") {
    this.isMoving = isMoving;
    if (what !== "size") this.news = news;
    if (what === "keys" || what === "settings") for (const column of this.columns) column.isStale = true;
    if (what !== "query") this.edition += 1;
    this.isSizeNew ||= what === "size" || what === "settings";
    this.isAnew ||= what !== "chosen" && what !== "size";
    this.frame ??= requestAnimationFrame(() => this.draw());
    clearTimeout(this.resting);
    if (isMoving) this.resting = setTimeout(() => this.rest(), REST);
  }

  draw() {
    this.frame = null;
    if (this.hasLeft) return;
    const columns = this.shownColumns();
    if (this.isSizeNew) for (const column of columns) column.measure();
    if (this.arraysOf !== this.edition) this.arrays = this.points.arrays(this.space);
    this.arraysOf = this.edition;
    for (const column of columns) {
      if (this.isAnew) column.update(this.isMoving);
      column.show();
    }
    this.isAnew = this.isSizeNew = false;
    if (!this.isMoving) this.settle();
  }

  rest() {
    clearTimeout(this.resting);
    this.isMoving = false;
    this.isAnew = true;
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  // What is handed out is of one moment: of the query that is seen, not of the one before.
  async handed(made) {
    if (this.isMoving) this.rest();
    while (this.frame) await new Promise(requestAnimationFrame);
    await Promise.all(this.shownColumns().map(({ answering }) => answering));
    return made(this);
  }

  // Once things are still: the address, who hears the page, and the lines of Python.
  settle() {
    this.keep(write({ preset: this.preset, space: this.space, isSelf: this.isSelf, shared: this.shared, columns: this.settings }));
    this.follow();
    this.saving.refresh();
    for (const column of this.shownColumns()) this.describe(column);
  }

  // For who hears the page: what is chosen, and what came of it; told aloud where the keyboard moved it.
  describe(column) {
    const said = `${spoken(this.points, this.space, this.points.chosen, column.result)}. ${column.label()}`;
    column.plane.svg.setAttribute("aria-label", said);
    if (column !== this.columns[0] || !(this.isByKey || this.news)) return;
    tell(this.news ? `${this.news} ${said}` : said);
  }

  // The server has answered for a column.
  answered(column) {
    if (this.shared.compare) for (const each of this.columns) if (each !== column) each.show(); // their scale may be another now
    if (!this.isMoving) this.describe(column);
  }

  go(state) {
    const { preset } = this;
    this.take(read(state));
    this.points.isSelf = this.isSelf;
    if (preset !== this.preset) this.points.begin(this.preset);
    else if (this.points.chosen.kind === "value") this.points.chosen = { kind: "query" };
    this.renew();
  }

  leave() {
    this.hasLeft = true;
    kept = { preset: this.preset, points: this.points };
    this.aborting.abort();
    clearTimeout(this.resting);
    cancelAnimationFrame(this.frame);
    for (const end of this.watchers) end();
  }
}

export function mount(root, options) {
  const room = new Room(root, options);
  return { go: state => room.go(state), leave: () => room.leave() };
}
