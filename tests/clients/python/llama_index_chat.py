"""LlamaIndex."""

import asyncio
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses
from pydantic import BaseModel
from talk import MODEL, QUESTIONS, SCHEMA_QUESTION, SYSTEM, TASK, look_up, run

BASE = {"model": MODEL, "api_base": os.environ["OPENAI_BASE_URL"]}  # it reads OPENAI_API_BASE by itself
ROOM = 1_000_000  # tokens: its own memory is to cut nothing


class Berth(BaseModel):
    """Where a ship lies."""

    quay: str
    number: int


def engine():
    """A chat whose history the framework keeps."""
    memory = Memory.from_defaults(session_id="harbour", token_limit=ROOM)
    return SimpleChatEngine.from_defaults(llm=OpenAI(**BASE), memory=memory, system_prompt=SYSTEM)


def talk():
    """Streams."""
    chat = engine()
    return ["".join(chat.stream_chat(question).response_gen) for question in QUESTIONS]


def whole():
    """Whole answers."""
    chat = engine()
    return [chat.chat(question).response for question in QUESTIONS]


def tools():
    """An agent's loop."""

    async def ran():
        agent = FunctionAgent(tools=[FunctionTool.from_defaults(look_up)], llm=OpenAI(**BASE), system_prompt=SYSTEM)
        memory = Memory.from_defaults(session_id="task", token_limit=ROOM)
        return str(await agent.run(TASK, memory=memory, max_iterations=50))

    return [asyncio.run(ran())]


def structured():
    """Objects of a class, at the end of a long conversation."""
    llm, told, messages = OpenAI(**BASE), [], [ChatMessage(role="system", content=SYSTEM)]
    for question in QUESTIONS:
        messages.append(ChatMessage(role="user", content=question))
        messages.append(llm.chat(messages).message)
    messages.append(ChatMessage(role="user", content=SCHEMA_QUESTION))
    told.append(llm.as_structured_llm(Berth).chat(messages).raw.model_dump())
    return told


def responses():
    """The other API."""
    return [OpenAIResponses(**BASE).complete(QUESTIONS[0]).text]


run(talk=talk, whole=whole, tools=tools, structured=structured, responses=responses)
