// How a word is said, as one drawing: its sounds above its letters, threads between them as thick as weights are, and
// under each letter the column of the alignment.
import { drawing, shape, text } from "../elements.js";
import { inCell, levelOf, percent, threeDigits } from "../numbers.js";

const LABEL = 46, EDGE = 6; // what stands left of the matrix, and what is left free at the right
const TILE = 40, SPAN = 110, ROW = 27; // heights: of a letter or a sound, of the threads, of a line of the matrix
const CELL = { least: 20, most: 76 };
const THICK = 15;
const SEEN = 0.02; // a thread of less weight would not be seen
const END = "⏎";

export const endName = "end of the word";
// A letter's name where the word has several of it: t₂.
export function told(names) {
  const counts = {}, seen = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  const low = number => [...String(number)].map(digit => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
  return names.map(name => (counts[name] > 1 ? `${name}${low((seen[name] = (seen[name] ?? 0) + 1))}` : name));
}

// What of a drawing lies where, for a width that is there.
function places(said, width) {
  const columns = said.letters.length + 1;
  const cell = Math.max(Math.min((width - LABEL - EDGE) / columns, CELL.most), CELL.least);
  const slot = Math.max(Math.min((cell * columns) / said.sounds.length, 92), 30);
  const wide = Math.max(cell * columns, slot * said.sounds.length);
  const first = LABEL + (wide - slot * said.sounds.length) / 2, letters = LABEL + (wide - cell * columns) / 2;
  return {
    cell, slot, total: LABEL + wide + EDGE, letters,
    sound: place => first + (place + 0.5) * slot,
    letter: place => letters + (place + 0.5) * cell,
    under: TILE + SPAN, table: 2 * TILE + SPAN + 10,
  };
}

const rowOf = sound => [...sound.weights, sound.end];

function thread(at, sound, letter, weight, kind) {
  const [x, y, under] = [at.letter(letter), at.under - 1, TILE + 1], from = at.sound(sound);
  const middle = (y + under) / 2;
  return shape("path", {
    d: `M${from} ${under} C${from} ${middle} ${x} ${middle} ${x} ${y}`, class: `thread ${kind}`,
    "stroke-width": Math.max(weight * THICK, 0.8), "stroke-linecap": "round", "pointer-events": "none",
  });
}

function soundTile(said, at, place, chosen, isWritten, onchoose) {
  const { name } = said.sounds[place], wide = Math.min(at.slot - 5, 66), x = at.sound(place) - wide / 2;
  const kind = place === chosen ? "sound is-chosen" : "sound";
  return shape("g", { class: isWritten ? kind : `${kind} is-to-come`, "data-sound": place, onclick: () => onchoose(place) },
    isWritten ? shape("title", {}, name) : null,
    shape("rect", { x, y: 1.5, width: wide, height: TILE - 3, rx: 7, class: isWritten ? "query" : "idle" }),
    place === chosen ? shape("rect", { x: x - 1, y: 1, width: wide + 2, height: TILE - 2, rx: 8, class: "chosen" }) : null,
    isWritten ? text(at.sound(place), TILE / 2 + 5, name, "on-query strong", "middle") : null);
}

function letterTile(at, place, letter, weight, largest) {
  const level = levelOf(weight, largest), wide = Math.min(at.cell - 4, 60), isEnd = letter === END;
  return shape("g", { class: "letter" },
    shape("title", {}, `${isEnd ? endName : letter}: ${threeDigits(weight)}`),
    shape("rect", {
      x: at.letter(place) - wide / 2, y: at.under + 1, width: wide, height: TILE - 2, rx: 6, class: "settles",
      fill: `var(--w${level})`, stroke: "var(--line)", "stroke-dasharray": isEnd ? "3 3" : null,
    }),
    text(at.letter(place), at.under + TILE / 2 + 6, letter, isEnd ? "sign" : "sign strong", "middle", { fill: `var(--i${level})` }));
}

function line(said, at, place, chosen, isWritten, largest, onchoose) {
  const y = at.table + place * ROW, sound = said.sounds[place];
  const cells = rowOf(sound).map((weight, column) => {
    const level = levelOf(weight, largest);
    return [
      shape("rect", {
        x: at.letters + column * at.cell, y, width: at.cell + 0.3, height: ROW + 0.3, "data-row": place, "data-column": column,
        fill: isWritten ? `var(--w${level})` : "var(--panel)",
      }),
      isWritten && at.cell >= 24
        ? text(at.letter(column), y + ROW / 2 + 4, inCell(weight), "small number", "middle", { fill: `var(--i${level})`, "pointer-events": "none" })
        : null,
    ];
  });
  return shape("g", { class: "line-of-table", onclick: () => onchoose(place) },
    isWritten ? text(at.letters - 9, y + ROW / 2 + 4, sound.name, place === chosen ? "ink strong" : "ink", "end") : null,
    ...cells.flat());
}

// `upto` sounds are written; `chosen` is the one that is looked at.
export function wordDrawing(said, { width, chosen, upto, onchoose }) {
  const at = places(said, width), letters = [...said.letters, END];
  const rows = said.sounds.map(rowOf), now = rows[chosen];
  const largest = Math.max(...rows.flat());
  const height = at.table + ROW * rows.length + 2;
  const threads = rows.slice(0, upto).flatMap((row, sound) =>
    sound === chosen ? [] : row.map((weight, letter) => weight < SEEN ? null : thread(at, sound, letter, weight, "is-aside")));
  const label = `“${said.letters}” is said ${said.sounds.slice(0, upto).map(({ name }) => name).join(" ")}; ${sentenceOf(said, chosen)}`;
  const wide = at.cell * letters.length;
  const drawn = drawing(at.total, height, label,
    ...threads,
    ...now.map((weight, letter) => weight < SEEN ? null : thread(at, chosen, letter, weight, "is-now")),
    ...said.sounds.map((_, place) => soundTile(said, at, place, chosen, place < upto, onchoose)),
    ...letters.map((letter, place) => letterTile(at, place, letter, now[place], largest)),
    ...said.sounds.map((_, place) => line(said, at, place, chosen, place < upto, largest, onchoose)),
    shape("rect", { x: at.letters, y: at.table, width: wide, height: ROW * rows.length, class: "faint", "pointer-events": "none" }),
    shape("rect", { x: at.letters, y: at.table + chosen * ROW, width: wide, height: ROW, class: "chosen", "pointer-events": "none" }));
  drawn.setAttribute("width", at.total);
  drawn.setAttribute("height", height);
  return { drawn, largest };
}

// What a sound attends to, in words, the heaviest three.
export function sentenceOf(said, place) {
  const names = told([...said.letters]);
  const heavy = rowOf(said.sounds[place])
    .map((weight, letter) => ({ weight, name: names[letter] ?? `the ${endName}` }))
    .filter(({ weight }) => weight >= 0.01)
    .sort((one, other) => other.weight - one.weight)
    .slice(0, 3);
  return `${said.sounds[place].name} attends to ${heavy.map(({ name, weight }) => `${name} (${percent(weight)})`).join(", ")}`;
}
