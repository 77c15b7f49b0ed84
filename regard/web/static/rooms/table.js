// The room of a table: slide the query, see the rows behind the answer, and how wide they should be heard.
import { button, panel, select } from "../controls.js";
import { element } from "../elements.js";
import { saving } from "../saving.js";
import { about as aboutPage, ask, latest, paced } from "../server.js";
import { fail, tell } from "../said.js";
import { words } from "./table-axes.js";
import { coarseFirst, widthsOf } from "./table-errors.js";
import { listen } from "./table-hands.js";
import { KeyPanel } from "./table-key.js";
import { Picture } from "./table-picture.js";
import { rowsTable } from "./table-rows.js";
import { source } from "./table-source.js";
import { read, write } from "./table-state.js";

const MANY = 60000; // rows from which on a curve is asked for in pieces
const AT_ONCE = 1e6; // queries × rows of a piece
const FINE = 161, COARSE = 65, FIRST = 9; // places of a curve: of few rows, of many, and before it is drawn
const REST = 250; // milliseconds without a move
const MOST_KEYS = 6;

class Room {
  constructor(root, { about, state, keep }) {
    Object.assign(this, { root, keep, about, table: null, columns: [], keys: [], query: [], widths: [], best: [], errors: [], opened: null });
    this.opening = latest();
    this.turn = this.wish = 0;
    this.asking = new AbortController();
    this.build(about);
    this.begin(state);
  }

  build(about) {
    this.source = source(this, about);
    this.notice = element("p", { class: "notice table-notice", role: "status", hidden: true });
    this.headline = element("p", { class: "answer-line", "aria-live": "off" });
    this.warning = element("p", { class: "warning", hidden: true });
    this.drawn = element("div", { class: "drawn" });
    this.handle = element("div", { class: "query-handle", role: "slider", tabindex: "0" });
    this.plot = element("div", { class: "plot" }, this.drawn, this.handle);
    this.caption = element("figcaption");
    this.rows = element("div", { class: "scroll rows-behind", tabindex: "0", role: "group", "aria-label": "Rows behind the answer" });
    this.notes = element("p", { class: "caption notes" });
    this.saved = saving("table", { picture: () => this.drawn.querySelector("svg"), rows: () => this.csv(), data: () => this.data(), python: () => this.python() });
    this.shown = element("div", { class: "table-shown" }, this.headline, this.warning, element("figure", {}, this.plot, this.caption), this.rows, this.notes, this.saved);
    this.side = element("div", { class: "side" });
    this.controls = element("div", { class: "controls" });
    this.side.append(panel(null, this.source.root), this.controls);
    this.root.append(element("div", { class: "stage" },
      element("h1", {}, "Ask a table, and see the rows behind the answer"),
      element("p", { class: "lead" }, "The answer to a query is an average of all rows’ values, and rows whose keys are near the query weigh most. Drag across the picture to move the query."),
      this.notice, this.shown), this.side);
    listen(this);
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(this.plot);
  }

  begin(state) {
    const given = read(state);
    const table = given.table ?? this.source.first();
    this.open(table, given);
  }

  // What was asked before is asked no more, neither here nor of the server: it would compute on, and others would wait.
  begins() {
    this.turn += 1;
    this.asking.abort();
    this.asking = new AbortController();
  }

  // Opens a table; what the address says of it is taken, as far as the table has it.
  async open(table, given = null) {
    this.waits("Reading the table …");
    this.begins();
    this.hasStopped = true;
    this.source.set(table);
    try {
      const opened = await this.opening(signal => ask("table", "open", { table }, signal));
      if (opened === undefined) return;
      this.arrive(table, opened, given);
    } catch (error) {
      this.refuse(error.message);
    }
  }

  arrive(table, opened, given) {
    const { key, value, label } = opened.suggested;
    if (key === null || value === null) {
      const usable = opened.columns.filter(({ role }) => role !== "none").length;
      this.refuse(opened.rows === 0 ? "The table has a header, and no rows." : `A table must have two columns that say something: one to ask by, and one to answer with. This one has ${usable}.${opened.notes.length ? ` ${opened.notes.join("; ")}.` : ""}`);
      return;
    }
    Object.assign(this, { table, opened, hasStopped: false });
    this.columns = opened.columns.map(each => ({ ...each, nameOf: code => each.categories?.find(([at]) => at === code)?.[1] ?? "?" }));
    this.source.set(table);
    const usable = place => this.columns[place] !== undefined && this.columns[place].role !== "none";
    const isGiven = given?.keys?.length > 0 && given.keys.length <= MOST_KEYS && given.keys.every(usable) && usable(given.value) && new Set([...given.keys, given.value]).size === given.keys.length + 1;
    this.notice.hidden = true;
    this.shown.hidden = this.controls.hidden = false;
    this.labelUsual = label;
    this.label = given?.label === undefined ? label : usable(given.label) ? given.label : null;
    this.isLarge = opened.rows >= MANY;
    if (isGiven) this.choose(given.keys, given.value, given);
    else this.choose([key], value);
  }

  // A reader who wishes for another table gets the last one; the number of the wish is given back.
  waits(message) {
    this.opening.end();
    this.notice.classList.remove("wrong");
    this.notice.replaceChildren(message);
    this.notice.hidden = false;
    this.shown.classList.add("busy");
    return (this.wish += 1);
  }

  // The table that was there stays, with what was asked of it.
  refuse(message) {
    this.notice.classList.add("wrong");
    this.notice.replaceChildren(element("span", {}, message), button("×", () => { this.notice.hidden = true; }, { class: "quiet-button", "aria-label": "Close the message" }));
    this.notice.hidden = false;
    this.shown.classList.remove("busy");
    this.shown.hidden = this.controls.hidden = this.opened === null;
    this.notice.scrollIntoView({ block: "nearest" });
    if (this.opened === null) return;
    this.source.set(this.table);
    if (this.hasStopped) this.askAll();
    this.hasStopped = false;
  }

  // Other columns: everything is asked anew.
  choose(keys, value, given = null) {
    this.begins();
    Object.assign(this, { keys, value, best: [], points: null, answer: null, curve: null, picture: null, isReadingErrors: false, hasChanged: false });
    this.query = keys.map((key, place) => this.legal(key, given?.query?.[place]) ?? this.middle(key));
    const first = keys.findIndex(key => this.columns[key].role === "line");
    this.alongUsual = Math.max(first, 0);
    this.along = given?.along !== null && given?.along < keys.length ? given?.along ?? this.alongUsual : this.alongUsual;
    this.widths = keys.map((_, place) => this.legalWidth(keys[place], given?.widths?.[place]));
    this.guessed = keys.map(key => this.guess(key));
    this.errors = keys.map(() => ({ known: [], measure: "", hidden: 0 }));
    this.buildControls();
    this.askAll();
  }

  legal(key, at) {
    if (at === null || at === undefined) return null;
    const column = this.columns[key];
    return column.role === "line" || column.categories.some(([code]) => code === at) ? at : null;
  }

  legalWidth = (key, width) => (width > 0 && (this.columns[key].role === "line" || width <= 1) ? width : null);

  middle(key) {
    const column = this.columns[key];
    if (column.role !== "line") return column.categories[0][0];
    const at = (column.low + column.high) / 2;
    return column.whole ? Math.round(at) : Number(at.toPrecision(3)) >= column.low && Number(at.toPrecision(3)) <= column.high ? Number(at.toPrecision(3)) : at;
  }

  // Until the best widths of a large table are known: by Scott's rule, a fifth of the line as its deviation.
  guess(key) {
    const column = this.columns[key];
    return column.role === "line" ? (Math.max(column.high - column.low, 1e-12) / 5) * Math.max(this.opened.rows, 1) ** -0.2 : this.hasBest ? 0.1 : 0;
  }

  rangeOf(place) {
    const column = this.columns[this.keys[place]];
    if (column.role !== "line") return [1e-3, 1];
    const span = column.high - column.low || Math.abs(column.low) || 1, best = this.best[place] ?? span;
    return [Math.max(Math.min(span / 500, best / 4), Number.MIN_VALUE), Math.max(2 * span, best * 2)];
  }

  // The width that is heard by; null where the table ignores a key, or has not chosen yet.
  widthOf = place => this.widths[place] ?? this.best[place] ?? (this.isLarge && this.best.length === 0 ? this.guessed[place] : null);
  // Categories alone are compared by equality: nothing is chosen.
  get hasBest() { return this.keys.some(key => this.columns[key].role === "line"); }
  isBest = place => this.best.length > 0 && (this.widths[place] === null || this.widths[place] === this.best[place]);
  errorsOf = place => this.errors[place];

  // As the server is asked: a large table is not made to choose while somebody waits for an answer.
  widthsAsked() {
    if (!this.isLarge) return this.widths.some(each => each !== null) ? this.widths : [];
    return this.widthsNow();
  }

  // In numbers, also of what is ignored; null where nothing that differs weighs anything.
  widthsNow() {
    return this.keys.map((key, place) => {
      const width = this.widthOf(place) ?? (this.columns[key].role === "line" ? 1e3 * this.rangeOf(place)[1] : 1);
      return width === 0 ? null : width;
    });
  }

  question = () => ({ table: this.table, keys: this.keys, value: this.value, widths: this.widthsAsked(), query: this.query, along: this.along, label: this.label });

  choices = (chosen, taken) => this.columns.map((column, place) => [place, column.name, column])
    .filter(([place, , { role }]) => role !== "none" && (place === chosen || !taken.includes(place)))
    .map(([place, name, { kind }]) => [place, kind === "number" ? name : `${name} (${kind})`]);

  buildControls() {
    this.panels = this.keys.map((_, place) => new KeyPanel(this, place));
    const value = select({ label: "Value: answer with", name: "value", value: this.value, options: this.choices(this.value, this.keys), onchange: each => this.choose(this.keys, Number(each), { query: this.query, along: this.along }) });
    const left = this.choices(-1, [...this.keys, this.value]);
    const add = left.length && this.keys.length < MOST_KEYS ? button("Ask by one more key", () => this.addKey()) : null;
    const across = this.keys.length > 1 ? select({ label: "Across the picture", name: "along", value: this.along, options: this.keys.map((key, place) => [place, this.columns[key].name]), onchange: each => this.setAlong(Number(each)) }) : null;
    this.bestButton = this.hasBest ? button("Best widths", () => this.takeBest(), { title: "Those by which hidden rows are predicted best" })
      : button("Usual widths", () => this.takeBest(), { title: "Rows that differ weigh nothing" });
    const names = [["", "by their numbers"], ...this.choices(this.label, [...this.keys, this.value])];
    const label = names.length > 1 ? select({ label: "Rows are called", name: "label", value: this.label ?? "", options: names, onchange: each => this.setLabel(each === "" ? null : Number(each)) }) : null;
    this.controls.replaceChildren(panel(null, value.root), ...this.panels.map(({ root }) => root), panel(null, across?.root, label?.root, element("div", { class: "buttons" }, this.bestButton, add)));
  }

  // The next key is the one that says most of what those that are there leave open.
  async addKey() {
    const { table, keys, value } = this, found = await this.guarded("another", { table, keys, value });
    if (found && found.key !== null) this.choose([...keys, found.key], value, { query: this.query, along: this.along });
  }

  setKey(place, key) {
    const query = [...this.query];
    query[place] = null;
    this.choose(this.keys.map((each, at) => (at === place ? key : each)), this.value, { query, along: this.along });
    this.panels[place].root.querySelector("select").focus();
  }

  removeKey(place) {
    const without = list => list.filter((_, at) => at !== place);
    this.choose(without(this.keys), this.value, { query: without(this.query), along: null });
    this.panels[0].root.querySelector("select").focus();
  }

  setAlong(place) {
    this.along = place;
    Object.assign(this, { points: null, curve: null, picture: null });
    this.askPoints();
    this.askAnswer();
    this.askCurve();
  }

  setLabel(place) {
    this.label = place;
    this.askAnswer();
  }

  takeBest() {
    this.widths = this.keys.map(() => null);
    this.rewidened();
    this.rested();
  }

  setWidth(place, width) {
    const [, high] = this.rangeOf(place);
    this.widths[place] = width >= high * 0.999 ? (this.columns[this.keys[place]].role === "line" ? 1e3 * high : 1) : width;
    this.rewidened();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.rested(place), REST);
  }

  rewidened() {
    for (const each of this.panels) each.showWidth();
    this.askAnswer();
    this.askCurve();
  }

  // Errors by one key's width depend on the others'.
  rested(moved = null) {
    if (this.keys.length > 1) this.askErrors(this.keys.map((_, place) => place).filter(place => place !== moved));
  }

  ask(place, at) {
    if (this.query[place] === at) return;
    this.query[place] = at;
    this.moved = performance.now();
    this.panels[place].showQuery();
    this.showQuery();
    this.askAnswer();
    if (place !== this.along) this.askCurve();
  }

  askAll() {
    for (const each of this.panels) each.showQuery();
    this.shown.classList.add("busy");
    this.askPoints();
    this.askAnswer();
    this.askCurve();
    this.askBest();
  }

  // Asks about the columns that are chosen; undefined where others were chosen meanwhile, or the room was left.
  async guarded(operation, body) {
    const { turn } = this;
    try {
      const found = await ask("table", operation, body, this.asking.signal);
      return turn === this.turn && !this.hasLeft ? found : undefined;
    } catch (error) {
      if (turn === this.turn && !this.hasLeft) this.wrong(error);
      return undefined;
    }
  }

  wrong(error) {
    this.shown.classList.remove("busy");
    if (error.status === 0 || error.status >= 500) fail(error);
    else {
      this.warning.textContent = error.message;
      this.warning.hidden = false;
    }
  }

  askPoints = async () => {
    const { keys, value, along, table } = this;
    const points = await this.guarded("points", { table, keys, value, along });
    if (!points || along !== this.along) return;
    this.points = points;
    this.draw();
  };

  askAnswer = paced(async () => {
    const top = this.opened.rows <= 400 ? 400 : 40, { along } = this;
    const answer = await this.guarded("answer", { ...this.question(), top });
    if (!answer || along !== this.along) return;
    this.answer = { ...answer, place: along };
    this.shown.classList.remove("busy");
    this.showAnswer();
  });

  askCurve() {
    this.curveTurn = (this.curveTurn ?? 0) + 1;
    this.pacedCurve();
  }

  pacedCurve = paced(async () => {
    const { curveTurn: mine, along } = this, column = this.columns[this.keys[along]], isLine = column.role === "line";
    const count = this.isLarge ? COARSE : FINE, { low, high } = column;
    const places = isLine ? Array.from({ length: high > low ? count : 1 }, (_, place) => low + ((high - low) * place) / (count - 1)) : column.categories.slice(0, 16).map(([code]) => code);
    const piece = this.isLarge ? Math.max(Math.floor(AT_ONCE / this.opened.rows), 1) : places.length;
    const order = this.isLarge && isLine ? coarseFirst(places.length) : [...places.keys()];
    const known = new Map();
    for (let begin = 0; begin < order.length; begin += piece) {
      // Who slides the query waits for answers, not for the curve.
      while (this.isLarge && performance.now() - (this.moved ?? -1e6) < REST && known.size > 0 && mine === this.curveTurn) await new Promise(after => setTimeout(after, 60));
      if (mine !== this.curveTurn) return;
      const asked = order.slice(begin, begin + piece), at = asked.map(place => places[place]);
      const found = await this.guarded("curve", { ...this.question(), at });
      if (!found || along !== this.along) return;
      asked.forEach((place, nth) => known.set(place, { at: at[nth], value: found.values[nth], spread: found.spreads[nth], shares: found.shares?.map(each => each[nth]) ?? null }));
      if (known.size >= Math.min(FIRST, places.length)) this.curveArrives(known);
    }
  });

  curveArrives(known) {
    const found = [...known].sort(([one], [other]) => one - other).map(([, each]) => each);
    const lanes = found[0].shares?.length ?? 0;
    this.curve = {
      at: found.map(({ at }) => at), values: found.map(({ value }) => value), spreads: found.map(({ spread }) => spread),
      shares: Array.from({ length: lanes }, (_, lane) => found.map(({ shares }) => shares[lane])),
    };
    this.draw();
  }

  askBest = async () => {
    const { table, keys, value, turn } = this, isGuess = this.isLarge && this.hasBest && this.best.length === 0;
    this.isSearching = isGuess;
    for (const each of isGuess ? this.panels : []) each.showErrors();
    const best = await this.guarded("best", { table, keys, value, aside: this.isLarge });
    if (turn !== this.turn) return;
    this.isSearching = false;
    for (const each of best ? [] : this.panels) each.showWidth();
    if (!best) return;
    this.best = best.widths;
    this.hasChanged = isGuess && this.widths.some(each => each === null);
    if (this.hasChanged) this.news = "The best widths are found, and used now. ";
    for (const each of this.panels) each.showWidth();
    if (this.isLarge && this.widths.some(each => each === null)) this.rewidened();
    this.showQuery();
    this.askErrors(keys.map((_, place) => place));
  };

  async askErrors(places) {
    const mine = (this.errorTurn = (this.errorTurn ?? 0) + 1), { turn } = this;
    const held = this.widthsNow();
    this.isReadingErrors = true;
    for (const place of places) {
      const tried = widthsOf(this.rangeOf(place), this.best[place] ?? null), order = coarseFirst(tried.length), known = new Map();
      const piece = this.isLarge ? 2 : tried.length;
      for (let begin = 0; begin < order.length; begin += piece) {
        const asked = order.slice(begin, begin + piece);
        const found = await this.guarded("errors", { table: this.table, keys: this.keys, value: this.value, widths: held, along: place, tried: asked.map(each => tried[each]) });
        if (mine !== this.errorTurn || turn !== this.turn) return;
        if (!found) {
          this.readErrors();
          return;
        }
        asked.forEach((each, nth) => known.set(each, [tried[each], found.errors[nth]]));
        this.errors[place] = { known: [...known].sort(([one], [other]) => one - other).map(([, each]) => each), measure: found.measure, hidden: found.hidden, baseline: found.baseline };
        this.panels[place].showErrors();
      }
    }
    this.readErrors();
  }

  readErrors() {
    this.isReadingErrors = false;
    for (const each of this.panels) each.showErrors();
  }

  // What stays while the query moves.
  draw() {
    if (!this.points || this.hasLeft) return;
    const width = Math.max(Math.round(this.plot.clientWidth), 240);
    this.picture = new Picture({ points: this.points, curve: this.curve, along: this.columns[this.keys[this.along]], value: this.columns[this.value] }, width);
    this.drawn.replaceChildren(this.picture.svg);
    this.showQuery();
    this.showCaption();
  }

  placeOf(at) {
    return this.columns[this.keys[this.along]].role === "line" ? at : this.points.columns.indexOf(at);
  }

  showQuery() {
    const { picture, answer, along } = this;
    if (!picture) return;
    const column = this.columns[this.keys[along]], at = this.query[along], place = this.placeOf(at), width = column.role === "line" ? this.widthOf(along) : null;
    const isOfThis = answer?.found && answer.place === along;
    const behind = isOfThis ? { ...answer, at: this.placeOf(answer.query[along] === null ? at : answer.at[along] ?? answer.query[along]), across: answer.across.map(each => (each === null ? null : this.placeOf(each))) } : null;
    this.handle.hidden = place < 0 && column.role !== "line";
    if (this.handle.hidden) {
      picture.clear();
      return;
    }
    picture.query(Math.min(Math.max(place, picture.from), picture.to), behind, width);
    const x = picture.across(Math.min(Math.max(place, picture.from), picture.to));
    this.handle.style.transform = `translateX(${x.toFixed(1)}px)`;
    this.handle.setAttribute("aria-label", `Query: ${column.name}`);
    const isLine = column.role === "line";
    this.handle.setAttribute("aria-valuemin", isLine ? column.low : 0);
    this.handle.setAttribute("aria-valuemax", isLine ? column.high : this.points.columns.length - 1);
    this.handle.setAttribute("aria-valuenow", isLine ? at : Math.max(place, 0));
    this.handle.setAttribute("aria-valuetext", `${isLine ? words(column, at) : column.nameOf(at)}${answer ? `: ${answer.report.headline}` : ""}`);
  }

  showAnswer() {
    const { report } = this.answer;
    const [query, told] = report.headline.includes(" → ") ? splitLast(report.headline) : ["", report.headline];
    this.headline.replaceChildren(element("small", {}, query ? `${query} → ` : ""), ...unbroken(told));
    this.warning.textContent = report.warning;
    this.warning.hidden = report.warning === "";
    this.rows.hidden = report.lines.length === 0;
    this.rows.replaceChildren(rowsTable(this.answer, this.label === null));
    this.notes.replaceChildren(...report.notes.flatMap(note => [note, element("br")]));
    this.showQuery();
    this.settle();
  }

  showCaption() {
    const { points, keys, along } = this, column = this.columns[keys[along]], { n, outside } = points;
    const others = keys.filter((_, place) => place !== along).map(key => this.columns[key].name);
    const rows = points.cells ? `${n.toLocaleString("en")} rows, counted in cells, the stronger the more lie there.` : points.points ? "Each dot is a row, the larger and stronger the more it weighs." : "";
    const kinds = this.columns[this.value].n;
    const lines = points.lanes ? `${column.role === "line" ? "The lines are" : "The marks are"} what part of the weight each ${this.columns[this.value].name} has${kinds > points.lanes.length ? `, of the ${points.lanes.length} most frequent of ${kinds.toLocaleString("en")}` : ""}.` : `${column.role === "line" ? "The line is" : "The marks are"} the output for every ${column.name}${others.length ? `, with ${others.join(", ")} as the query has ${others.length > 1 ? "them" : "it"}` : ""}; the band, one standard deviation to each side.`;
    const left = outside ? ` ${outside.toLocaleString("en")} ${outside === 1 ? "row lies" : "rows lie"} outside of the picture.` : "";
    const most = column.role !== "line" && column.n > points.columns.length ? ` Of ${column.n.toLocaleString("en")} kinds of ${column.name} it shows the ${points.columns.length} most frequent.` : "";
    this.caption.replaceChildren(`${rows} ${lines}${left}${most}`.trim());
  }

  settle() {
    this.keep(write(this));
    clearTimeout(this.settling);
    this.settling = setTimeout(() => { this.saved.refresh(); }, REST);
    if (document.activeElement !== this.handle || this.news) tell(`${this.news ?? ""}${this.answer.report.headline}.`);
    this.news = null;
  }

  async python() {
    const { python } = await ask("table", "python", { ...this.question(), widths: this.widths.some(each => each !== null) ? this.widths : [], name: this.source.nameOf(this.table) });
    return python;
  }

  async csv() {
    const { report, weights } = await ask("table", "answer", { ...this.question(), top: 400, told: 100 });
    return [report.header, ...report.raw.map((row, place) => [...row.map(each => (each !== null && typeof each === "object" ? JSON.stringify(each) : each)), weights[place]])];
  }

  async data() {
    const answer = await ask("table", "answer", { ...this.question(), top: 400, told: 100 });
    const names = places => places.map(place => this.columns[place].name);
    return {
      table: this.source.nameOf(this.table), key: names(this.keys), value: this.columns[this.value].name, query: answer.query, found: answer.found, output: answer.output,
      rows: answer.report.raw.map((row, place) => ({ index: row[0], key: row.slice(1, -1), value: row.at(-1), weight: answer.weights[place] })), rest: answer.rest,
      effective_rows: answer.effective, n_rows: answer.n, said: [answer.report.headline, answer.report.warning, ...answer.report.notes].filter(each => each),
      widths: this.keys.map((_, place) => this.widthOf(place)), curve: this.curve && { across: this.columns[this.keys[this.along]].name, ...this.curve }, errors: this.errors,
    };
  }

  go(state) {
    const given = read(state), table = given.table ?? this.source.first();
    if (table !== this.table) this.open(table, given);
    else {
      this.wish += 1;
      this.opening.end();
      this.arrive(table, this.opened, given);
    }
  }

  leave() {
    this.hasLeft = true;
    this.wish = -1;
    this.begins();
    this.curveTurn = this.errorTurn = -1;
    this.opening.end();
    clearTimeout(this.resting);
    clearTimeout(this.settling);
    this.sized.disconnect();
    this.source.leave();
  }
}

function splitLast(headline) {
  const at = headline.lastIndexOf(" → ");
  return [headline.slice(0, at), headline.slice(at + 3)];
}

// How many categories there are is read as one word.
function unbroken(output) {
  const [before, count, after] = output.split(/(\([\d,]+ in all\))/);
  return count === undefined ? [output] : [before, element("span", { class: "unbroken" }, count), after];
}

export function mount(root, given) {
  aboutPage(true).catch(() => {}); // tables that were dropped are there when the reader comes back
  const room = new Room(root, given);
  return { go: state => room.go(state), leave: () => room.leave() };
}
