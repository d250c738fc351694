// Calls of the server, and the key they are made with. The key lives in this tab only.

const KEY = "roam-key";

export class ApiError extends Error {
  constructor(status, body) {
    super(body.message ?? `the server answered ${status}`);
    this.status = status;
  }
}

export const setKey = (key) => sessionStorage.setItem(KEY, key);

async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(`/v1/${path}`, { ...options, headers });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body);
  return body;
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
    const page = await get(path, { ...query, cursor });
    items.push(...page.items);
    if (!page.next) return items;
    cursor = page.next;
  }
}
