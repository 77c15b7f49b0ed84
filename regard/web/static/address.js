// The state of a room in the fragment of the address: #table?bandwidth=0.3. Settings alone: never the reader's data.

export function read() {
  const [room, settings = ""] = location.hash.slice(1).split("?", 2);
  return { room, state: Object.fromEntries(new URLSearchParams(settings)) };
}

let waiting = null;
let last = 0;
const PAUSE = 150; // milliseconds between two changes: browsers refuse many in a second

export function fragment(room, state) {
  const known = Object.entries(state).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const settings = new URLSearchParams(known.map(([name, value]) => [name, String(value)])).toString();
  return `#${room}${settings ? `?${settings}` : ""}`;
}

export function write(room, state) {
  clearTimeout(waiting);
  const put = () => {
    last = performance.now();
    if (read().room !== room && location.hash !== "") return; // the reader has left the room
    history.replaceState(null, "", fragment(room, state));
  };
  const rest = PAUSE - (performance.now() - last);
  if (rest <= 0) put();
  else waiting = setTimeout(put, rest);
}
