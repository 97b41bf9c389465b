// What every client here is run with: `node CLIENT.mjs SCENARIO`, the conversation in the file that $TALK names.
// A client knows the proxy by its base URL alone, and prints what it was told, as one line of JSON.
import { readFileSync } from "node:fs";

export const talk = JSON.parse(readFileSync(process.env.TALK, "utf8"));
export const lookUp = (berth) => talk.result.replace("{berth}", berth);

export async function run(scenarios) {
  const told = await scenarios[process.argv[2]]();
  process.stdout.write(`\n${JSON.stringify(told)}\n`);
}
