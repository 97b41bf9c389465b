// Vercel's AI SDK, with its provider for OpenAI in the chat-completions mode and, for `compatible`, the generic one.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { lookUp, run, talk } from "./talk.mjs";

const openai = createOpenAI(); // reads OPENAI_BASE_URL
const generic = createOpenAICompatible({
  name: "trimtab",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  supportsStructuredOutputs: true,
});
const shape = z.object({ quay: z.string(), number: z.number().int() });
const look_up = tool({
  description: "Look a berth up in the harbour's register.",
  inputSchema: z.object({ berth: z.number().int() }),
  execute: async ({ berth }) => lookUp(berth),
});

async function each(ask, questions = talk.questions) {
  const messages = [];
  const told = [];
  for (const question of questions) {
    messages.push({ role: "user", content: question });
    const [said, added] = await ask(messages);
    messages.push(...added);
    told.push(said);
  }
  return told;
}

const streaming = (model) => async (messages) => {
  const result = streamText({ model, system: talk.system, messages });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  return [text, (await result.response).messages];
};

await run({
  talk: () => each(streaming(openai.chat(talk.model))),
  compatible: () => each(streaming(generic(talk.model))),

  whole: () =>
    each(async (messages) => {
      const result = await generateText({ model: openai.chat(talk.model), system: talk.system, messages });
      return [result.text, result.response.messages];
    }),

  async tools() {
    const result = await generateText({
      model: openai.chat(talk.model),
      system: talk.system,
      prompt: talk.task,
      tools: { look_up },
      stopWhen: stepCountIs(50),
    });
    return [result.text];
  },

  structured: () =>
    each(async (messages) => {
      const model = openai.chat(talk.model);
      const result = await generateText({ model, system: talk.system, messages, output: Output.object({ schema: shape }) });
      return [result.output, result.response.messages];
    }, [...talk.questions, talk.schema_question]),

  // The other API, which is this provider's default.
  async responses() {
    return [(await generateText({ model: openai(talk.model), prompt: talk.questions[0] })).text];
  },
});
