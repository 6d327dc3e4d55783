// Files on their way to the server, and how far they are.

// `box` has a label and a progress bar, and is shown while the file is sent, read and encoded.
export async function sendFile(server, file, box, seed) {
  const report = (share) => {
    box.hidden = false;
    box.querySelector("progress").value = share;
    const percent = Math.floor(100 * share);
    box.querySelector("label").textContent =
      share < 1 ? `Sending ${file.name}: ${percent}%` : `Reading ${file.name} …`;
  };
  try {
    return await server.openFile(file, seed, report);
  } finally {
    box.hidden = true;
  }
}
