// What the address has of the room of a table: which table, columns by their places, the query in numbers, widths.
const numbers = text => (text ? text.split("~").map(each => (each === "" || !Number.isFinite(Number(each)) ? null : Number(each))) : null);
const places = text => numbers(text)?.filter(each => Number.isInteger(each) && each >= 0);
const joined = list => list.map(each => (each === null ? "" : Number(each.toPrecision(10)))).join("~");

export const EXAMPLE = { table: "example", name: "graduates.csv" };

export function read(state) {
  return {
    table: state.table ?? null, keys: places(state.keys) ?? null, value: places(state.value)?.[0] ?? null,
    query: numbers(state.q), widths: numbers(state.w), along: places(state.along)?.[0] ?? null,
    label: "label" in state ? places(state.label)?.[0] ?? null : undefined, // null: rows are called by their numbers
  };
}

export const write = ({ table, keys, value, query, widths, along, alongUsual, label, labelUsual }) => ({
  table, keys: keys.join("~"), value, q: joined(query), w: widths.some(each => each !== null) ? joined(widths) : null,
  along: along === alongUsual ? null : along, label: label === labelUsual ? null : label ?? "none",
});
