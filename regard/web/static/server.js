// What is asked of the server. A refusal is an Error whose message can be shown as it is.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answered(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    throw new Refused(response.status, `The server gave no answer that can be read (${response.status}).`);
  }
  if (!response.ok) throw new Refused(response.status, body?.error ?? `The server refused this (${response.status}).`);
  return body;
}

async function fetched(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Has it been stopped?");
  }
  return answered(response);
}

let known = null;
// What the page was started with: version, model, tables, limits.
export function about(anew = false) {
  if (known === null || anew) {
    known = fetched("about");
    known.catch(() => { known = null; });
  }
  return known;
}

export const stop = () => fetched("stop", { method: "POST" });

// An operation of a room; `signal` ends it, and what the server computes for it.
export const ask = (room, operation, body = {}, signal = undefined) =>
  fetched(`ask/${room}/${operation}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

export const drop = (file, signal = undefined) =>
  fetched(`files?name=${encodeURIComponent(file.name)}`, { method: "PUT", body: file, signal });

// Only the latest question counts: `run` ends the one before. It resolves to undefined where a later one has begun.
export function latest() {
  let controller = null;
  async function run(work) {
    controller?.abort();
    const mine = (controller = new AbortController());
    try {
      const found = await work(mine.signal);
      return mine.signal.aborted ? undefined : found;
    } catch (error) {
      if (mine.signal.aborted) return undefined;
      throw error;
    }
  }
  run.end = () => controller?.abort();
  return run;
}

// While something moves: the newest question is asked as soon as the one before is answered, those between are not.
export function paced(work) {
  let busy = false, next = null;
  return async function push(...given) {
    next = given;
    if (busy) return;
    busy = true;
    try {
      while (next !== null) {
        const now = next;
        next = null;
        await work(...now);
      }
    } finally {
      busy = false;
    }
  };
}
