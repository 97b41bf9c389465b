// The questions to the proxy.

export class Problem extends Error {}

export async function ask(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  let response;
  try {
    response = await fetch(`${path}${query.size ? `?${query}` : ""}`, { cache: "no-store", ...options });
  } catch {
    throw new Problem("The proxy does not answer.");
  }
  let said = null;
  try {
    said = await response.json();
  } catch {
    // told below by the status alone
  }
  if (!response.ok) throw new Problem(said?.error?.message ?? `The proxy answered with status ${response.status}.`);
  return said;
}
