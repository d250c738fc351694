// Calls of the server, and the key they are made with. The key lives in this tab only.

const KEY = "roam-key";
const TRIES = 5; // of a call that the server asks to repeat

export class ApiError extends Error {
  constructor(status, body) {
    super(body.message ?? `the server answered ${status}`);
    this.status = status;
  }
}

export const setKey = (key) => sessionStorage.setItem(KEY, key);

const pause = (seconds) => new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });

// A call; one that comes too often is repeated when the server says, since it did nothing.
async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  for (let tried = 1; ; tried += 1) {
    const response = await fetch(`/v1/${path}`, { ...options, headers })
      .catch(() => { throw new ApiError(0, { message: "The server does not answer. Is it running?" }); });
    const body = await response.json().catch(() => ({}));
    if (response.ok) return body;
    if (response.status !== 429 || tried === TRIES) throw new ApiError(response.status, body);
    await pause(Number(response.headers.get("Retry-After")) || 1);
  }
}

export const get = (path, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return call(given.length ? `${path}?${new URLSearchParams(given)}` : path);
};

export const post = (path, body) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });


// All items of a list that comes in pages.
export async function all(path, query) {
  const items = [];
  for (let cursor = null; ; ) {
    const page = await get(path, { ...query, limit: 1000, cursor });
    items.push(...page.items);
    if (!page.next) return items;
    cursor = page.next;
  }
}
