// The line that a column lies on: where its marks stand, and how a place on it is written.
import { ticks } from "../elements.js";
import { plain, signed } from "../numbers.js";

const DAY = 86400000;
const dateOf = days => new Date(days * DAY);
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = number => String(number).padStart(2, "0");

function clock(hours) {
  const minutes = Math.round(hours * 60);
  return `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

const iso = days => {
  const date = dateOf(days);
  return Number.isNaN(date.getTime()) ? "?" : date.toISOString();
};

// A place as a reader writes it; `digits` of a number.
export function words(column, at, digits = 6) {
  if (at === null || at === undefined || !Number.isFinite(at)) return "–";
  if (column.kind === "date") return iso(Math.round(at)).slice(0, 10);
  if (column.kind === "moment") return iso(Math.round(at * 1440) / 1440).slice(0, 16).replace("T", " ");
  if (column.kind === "clock") return clock(at);
  if (column.kind === "duration") return `${plain(at, digits)} days`;
  // Four digits may be a year: only longer numbers are grouped.
  return Math.abs(at) < 10000 && Math.abs(at) >= 1 ? signed(String(Number(at.toPrecision(digits)))) : plain(at, digits);
}

// A length on the line: a bandwidth, a spread.
export function length(column, size, digits = 3) {
  if (column.kind === "clock") return `${plain(size, digits)} h`;
  return column.unit === "days" ? `${plain(size, digits)} days` : plain(size, digits);
}

const YEARS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const yearsApart = (low, high, step) => {
  const found = [];
  const [first, last] = [low, high].map(each => dateOf(each).getUTCFullYear());
  for (let year = Math.ceil(first / step) * step; year <= last; year += step) found.push({ at: Date.UTC(year, 0, 1) / DAY, words: String(year) });
  return found;
};
const monthsApart = (low, high, step) => {
  const found = [], start = dateOf(low);
  for (let month = 0; month < 60; month += 1) {
    const date = new Date(Date.UTC(start.getUTCFullYear(), month, 1)), at = date.getTime() / DAY;
    if (at > high) break;
    if (month % step === 0) found.push({ at, words: date.getUTCMonth() === 0 ? String(date.getUTCFullYear()) : MONTHS[date.getUTCMonth()] });
  }
  return found;
};

function dateMarks(low, high, count) {
  const span = high - low;
  if (span > 365.25 * count) return yearsApart(low, high, YEARS.find(each => span / 365.25 / each <= count) ?? 2000);
  if (span > 45) return monthsApart(low, high, [1, 2, 3, 6, 12].find(each => span / 30.4 / each <= count) ?? 12);
  if (span > 2) {
    const step = Math.max(Math.ceil(span / count), 1);
    return ticks(0, Math.floor(high - Math.ceil(low)), Math.floor((high - low) / step) || 1).map(each => {
      const at = Math.ceil(low) + Math.round(each), date = dateOf(at);
      return { at, words: `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}` };
    });
  }
  return clockMarks(low * 24, high * 24, count).map(({ at, words }) => ({ at: at / 24, words }));
}

const HOURS = [1 / 60, 1 / 12, 0.25, 0.5, 1, 2, 3, 6, 12];
function clockMarks(low, high, count) {
  const step = HOURS.find(each => (high - low) / each <= count) ?? 24, found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9; at += step) found.push({ at, words: clock(((at % 24) + 24) % 24) });
  return found.length ? found : [{ at: low, words: clock(low) }];
}

// About `count` marks on the line from low to high, as { at, words }.
export function marks(column, low, high, count) {
  const found = column.kind === "date" || column.kind === "moment" ? dateMarks(low, high, count)
    : column.kind === "clock" ? clockMarks(low, high, count) : ticks(low, high, count).map(at => ({ at, words: words(column, at, 4) }));
  const inside = found.filter(({ at }) => at >= low - 1e-9 * Math.abs(low) && at <= high + 1e-9 * Math.abs(high));
  return inside.filter((each, place) => place === 0 || each.words !== inside[place - 1].words);
}

// How far a press of an arrow goes: a round number, about a hundredth of the line.
export function stepOf(column, parts = 100) {
  const span = column.high - column.low;
  if (!(span > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(span / parts));
  const step = [1, 2, 5].map(each => each * power).find(each => each * 1.999 >= span / parts) ?? power;
  if (column.kind === "moment") return Math.max(Math.round((span / parts) * 1440), 1) / 1440;
  if (column.kind === "clock") return Math.max(Math.round((span / parts) * 60), 1) / 60;
  return column.whole ? Math.max(Math.round(step), 1) : step;
}

export function rounded(column, at, parts = 100) {
  const step = stepOf(column, parts);
  return Number((Math.round(at / step) * step).toPrecision(12));
}

// What a field for typing has, and what it means; null where that is no place on the line.
export const FIELDS = { date: "date", moment: "datetime-local", clock: "time" };
export const typed = (column, at) => {
  if (column.kind === "moment") return iso(Math.round(at * 1440) / 1440).slice(0, 16);
  return column.kind in FIELDS ? words(column, at) : String(Number(at.toPrecision(10)));
};
export function meant(column, text) {
  if (text.trim() === "") return null;
  if (column.kind === "clock") {
    const [hours, minutes] = text.split(":").map(Number);
    return Number.isFinite(hours + minutes) ? hours + minutes / 60 : null;
  }
  const at = column.kind in FIELDS ? Date.parse(column.kind === "date" ? text : `${text}Z`) / DAY : Number(text);
  return Number.isFinite(at) ? at : null;
}
