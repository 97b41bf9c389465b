// The official library.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { lookUp, run, talk } from "./talk.mjs";

const client = new OpenAI();
const begun = () => [{ role: "system", content: talk.system }];
const shape = z.object({ quay: z.string(), number: z.number().int() });
const tool = {
  type: "function",
  function: {
    name: "look_up",
    description: "Look a berth up in the harbour's register.",
    parameters: { type: "object", properties: { berth: { type: "integer" } }, required: ["berth"] },
  },
};

async function streamed(questions = talk.questions, messages = begun()) {
  const told = [];
  for (const question of questions) {
    messages.push({ role: "user", content: question });
    const stream = await client.chat.completions.create({ model: talk.model, messages, stream: true });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
    messages.push({ role: "assistant", content: text });
    told.push(text);
  }
  return told;
}

async function each(ask, questions = talk.questions) {
  const messages = begun();
  const told = [];
  for (const question of questions) {
    messages.push({ role: "user", content: question });
    const message = await ask(messages);
    messages.push(message);
    told.push(message.parsed ?? message.content);
  }
  return told;
}

await run({
  talk: streamed,

  // Whole answers; what is sent back is the library's own object.
  whole: () =>
    each(async (messages) => (await client.chat.completions.create({ model: talk.model, messages })).choices[0].message),

  // The streaming helper, which assembles the message, with usage.
  helper: () =>
    each(async (messages) => {
      const asked = { model: talk.model, messages, stream_options: { include_usage: true } };
      const reply = await client.chat.completions.stream(asked).finalChatCompletion();
      if (!(reply.usage.prompt_tokens > 0)) throw new Error("no usage");
      return reply.choices[0].message;
    }),

  // The library's own loop of calls, one of them parallel.
  async tools() {
    const messages = [...begun(), { role: "user", content: talk.task }];
    const runnable = { ...tool.function, parse: JSON.parse, function: ({ berth }) => lookUp(berth) };
    const asked = { model: talk.model, messages, tools: [{ type: "function", function: runnable }] };
    return [await client.chat.completions.runTools(asked, { maxChatCompletions: 50 }).finalContent()];
  },

  structured: () =>
    each(async (messages) => {
      const asked = { model: talk.model, messages, response_format: zodResponseFormat(shape, "berth") };
      return (await client.chat.completions.parse(asked)).choices[0].message;
    }, [...talk.questions, talk.schema_question]),

  async images() {
    const messages = begun();
    const told = [];
    for (const text of talk.questions) {
      const picture = { type: "image_url", image_url: { url: talk.image, detail: "low" } };
      messages.push({ role: "user", content: [{ type: "text", text }, picture] });
      const { message } = (await client.chat.completions.create({ model: talk.model, messages })).choices[0];
      messages.push(message);
      told.push(message.content);
    }
    return told;
  },

  // A stream is left after a few words; the conversation goes on with what came.
  async abort() {
    const messages = [...begun(), { role: "user", content: talk.slow }];
    const stream = await client.chat.completions.create({ model: talk.model, messages, stream: true });
    let heard = "";
    let pieces = 0;
    for await (const chunk of stream) {
      heard += chunk.choices[0]?.delta?.content ?? "";
      if (++pieces === 4) stream.controller.abort();
    }
    return streamed(talk.questions, [...messages, { role: "assistant", content: heard }]);
  },

  // The upstream is busy, then down, then there: the library tries again by itself.
  retry: () => streamed([...talk.questions.slice(0, -1), talk.fails]),

  // The other API.
  async responses() {
    return [(await client.responses.create({ model: talk.model, input: talk.questions[0] })).output_text];
  },
});
