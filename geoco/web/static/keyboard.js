// Keys: numbers select, arrows move, plus and minus resize, Delete removes, Ctrl+Z goes back,
// O shows the original.

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const FAST = 5; // pixels, with Shift
const LARGER = 1.05;

export function listenToKeys(page) {
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea, pre, [contenteditable]")) return;
    if (event.altKey) return;
    const done = event.ctrlKey || event.metaKey ? handleControlKey(page, event) : handlePlainKey(page, event);
    if (done) event.preventDefault();
  });
}

function handleControlKey(page, event) {
  const key = event.key.toLowerCase();
  if (key === "z") page.go(event.shiftKey ? 1 : -1);
  else if (key === "y") page.go(1);
  else return false;
  return true;
}

function handlePlainKey(page, event) {
  const { key } = event;
  if (/^[0-9]$/.test(key)) return selectSlot(page, Number(key));
  if (key === " " && page.history.isVideo && !event.target.closest("button, a, summary")) {
    page.timeline.toggle();
    return true;
  }
  if (key.toLowerCase() === "o") {
    page.press("original");
    return true;
  }
  if (key === "Escape") {
    if (page.gestures.current) page.gestures.cancel();
    else page.select(null);
    return true;
  }
  return page.selected !== null && handleSelectionKey(page, key, event.shiftKey);
}

function handleSelectionKey(page, key, shift) {
  const slot = page.selected;
  if (key in ARROWS) {
    const [dx, dy] = ARROWS[key].map((step) => step * (shift ? FAST : 1));
    page.gestures.step("move", slot, { dx, dy });
  } else if (key === "+" || key === "=") {
    page.gestures.step("resize", slot, { factor: LARGER });
  } else if (key === "-" || key === "_") {
    page.gestures.step("resize", slot, { factor: 1 / LARGER });
  } else if (key === "Delete" || key === "Backspace") {
    page.remove();
  } else {
    return false;
  }
  return true;
}

function selectSlot(page, slot) {
  const view = page.history.view?.slots[slot];
  if (view?.is_present) page.select(slot);
  return Boolean(view);
}
