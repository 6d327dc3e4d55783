// What the server says, in the words of the page: buttons and fields that one sees, not parameters.

const NAMES = {
  scale: "The scale",
  factor: "The scale",
  x: "The place x",
  y: "The place y",
  dx: "The move to the side",
  dy: "The move up or down",
  frames: "The range of frames",
  keys: "A key frame",
};

const LIMITS = [
  [/^Input should be less than or equal to (\S+), got (.+)$/, "can be $1 at most, not $2"],
  [/^Input should be greater than or equal to (\S+), got (.+)$/, "must be $1 at least, not $2"],
  [/^Input should be greater than (\S+), got (.+)$/, "must be more than $1, not $2"],
  [/^Input should be less than (\S+), got (.+)$/, "must be less than $1, not $2"],
];

const SENTENCES = [
  [
    /no slot is empty; remove one first.*$/,
    "every slot is in use. Select an object that may go, press Remove, and try Duplicate again",
  ],
  [
    /^this session has no such state to take from.*$/,
    "The server has forgotten that scene: choose it again under From",
  ],
  [
    /^this session has no such state.*$/,
    "The server has forgotten this step: choose the scene again, or press Open a file",
  ],
  [
    /^there is no such session.*$/,
    "The server has forgotten what was open here: reload the page to begin anew",
  ],
  [
    /: export it and go on from that$/,
    ": save it under Take away with Picture, and open that with Open a file",
  ],
  [/^(a video is too long|the video has more than \d+ frames): .*$/, "$1: cut it into shorter pieces before you open it"],
];

export function rephrase(text) {
  const field = /^the edit ([\w.]+): (.+)$/s.exec(text);
  const limited = field && describeLimit(field[1], field[2]);
  return toSentence(limited ?? SENTENCES.reduce((said, [pattern, words]) => said.replace(pattern, words), text));
}

// "scale: Input should be less than or equal to 2, got 50" of a field that the page has.
function describeLimit(path, problem) {
  const name = path.split(".").findLast((part) => part in NAMES);
  const limit = LIMITS.find(([pattern]) => pattern.test(problem));
  return name && limit ? `${NAMES[name]} ${problem.replace(...limit)}` : null;
}

export function toSentence(text) {
  const whole = text[0].toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
