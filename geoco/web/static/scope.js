// Which frames of a video an edit is for: all, some, or all with key frames in between.

const START = { move: [0, 0], resize: [1] };

// The edit to send and the history entry that it is applied to. With key frames, a second move of
// the same slot does not come on top of the first: both become keys of one edit.
export function applyScope(edit, scope, frame, entry) {
  if (scope.kind === "range") {
    return { edit: { ...edit, frames: [scope.first, scope.last] }, base: entry };
  }
  if (scope.kind !== "keys" || !(edit.op in START)) return { edit, base: entry };
  const last = entry.keyed;
  const goesOn = last && last.op === edit.op && last.slot === edit.slot;
  const keys = new Map(goesOn ? last.keys : []);
  const before = findValueAt(keys, frame, edit.op);
  const value =
    edit.op === "move"
      ? [before[0] + edit.dx, before[1] + edit.dy]
      : [before[0] * edit.factor];
  keys.set(frame, value);
  const ordered = [...keys].sort(([one], [other]) => one - other);
  const base = goesOn ? last.base : entry;
  return {
    edit: { op: edit.op, slot: edit.slot, keys: ordered.map(([at, numbers]) => [at, ...numbers]) },
    base,
    keyed: { op: edit.op, slot: edit.slot, keys, base },
  };
}

// What keys say at a frame: straight lines between them, geometric for sizes, constant beyond.
export function findValueAt(keys, frame, op) {
  const known = [...keys].sort(([one], [other]) => one - other);
  if (known.length === 0) return START[op];
  const after = known.find(([at]) => at >= frame) ?? known.at(-1);
  const before = known.findLast(([at]) => at <= frame) ?? known[0];
  const gap = after[0] - before[0];
  const share = gap ? (frame - before[0]) / gap : 0;
  return before[1].map((value, index) =>
    op === "resize"
      ? value * (after[1][index] / value) ** share
      : value + share * (after[1][index] - value),
  );
}
