// What is open, kept for a reload: names of the server's states, not their pictures.

const WORK = "geoco-work";
const MOST = 60; // states that are asked for again, the last ones

export function remember(server, history, name) {
  const entries = history.entries.map(({ state, keyed }) => ({
    id: state.id,
    keyed: keyed && {
      op: keyed.op,
      slot: keyed.slot,
      keys: [...keyed.keys],
      base: history.entries.indexOf(keyed.base),
    },
  }));
  const { at, frame, scope } = history;
  const seed = history.origin?.seed;
  const sample = history.origin?.sample ?? null;
  const work = { session: server.id, entries, at, frame, scope, name, sample, seed };
  try {
    sessionStorage.setItem(WORK, JSON.stringify(work));
  } catch {
    // a browser that keeps nothing: a reload begins anew
  }
}

// The work of this session; null where there is none, or of another session.
export function recall(server) {
  const work = read();
  return work?.session === server.id ? work : null;
}

// Whether there is anything whose loss would be noticed: a file, or edits.
export function hasWork() {
  const work = read();
  return Boolean(work && (!work.sample || work.entries.length > 1));
}

function read() {
  try {
    const work = JSON.parse(sessionStorage.getItem(WORK));
    return work?.entries?.length ? work : null;
  } catch {
    return null; // damaged: as if there were none
  }
}

// States by their place in the history, as far as the server still has them.
export async function askForStates(server, { entries, at, frame }) {
  const known = new Map();
  const first = Math.max(0, Math.min(at, entries.length - MOST));
  for (let place = first; place < entries.length; place += 1) {
    try {
      known.set(place, await server.state(entries[place].id, frame));
    } catch (problem) {
      if (problem.status !== 404) throw problem;
    }
  }
  if (first > 0) {
    // what "before" shows
    const start = await server.state(entries[0].id, frame).catch(() => null);
    if (start) known.set(0, start);
  }
  return known;
}
