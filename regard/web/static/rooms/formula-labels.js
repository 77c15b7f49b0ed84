// Where names stand beside what they name: at its right, or where no other name and no key is in the way.
const LETTER = 8.4, LINE = 15; // pixels, about

// Each of `marks` is { x, y, radius, words }; the answer, for each, is where its words begin from it, and their anchor.
export function placed(marks, { x: left, y: top, width, height }) {
  const boxes = [];
  return marks.map(mark => {
    const wide = LETTER * mark.words.length, aside = mark.radius + 5;
    const ways = [
      { x: aside, y: 4, "text-anchor": "start" }, { x: -aside, y: 4, "text-anchor": "end" },
      { x: 0, y: -aside - 1, "text-anchor": "middle" }, { x: 0, y: aside + 11, "text-anchor": "middle" },
    ];
    const boxOf = way => {
      const from = mark.x + way.x - { start: 0, end: wide, middle: wide / 2 }[way["text-anchor"]];
      return [from, mark.y + way.y - 11, from + wide, mark.y + way.y - 11 + LINE];
    };
    const hindrance = ([x0, y0, x1, y1]) => {
      const beyond = x0 < left || x1 > left + width || y0 < top || y1 > top + height ? 2.5 : 0;
      const names = boxes.filter(([a0, b0, a1, b1]) => a0 < x1 && x0 < a1 && b0 < y1 && y0 < b1).length;
      const dots = marks.filter(({ x, y, radius }) => x + radius > x0 && x - radius < x1 && y + radius > y0 && y - radius < y1).length;
      return beyond + names + dots;
    };
    let best = null;
    for (const way of ways) {
      const box = boxOf(way), hinders = hindrance(box);
      if (best === null || hinders < best.hinders) best = { way, box, hinders };
    }
    boxes.push(best.box);
    return best.way;
  });
}
