"""Pydantic AI, in its chat-completions mode."""

import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from talk import MODEL, QUESTIONS, SCHEMA_QUESTION, SYSTEM, TASK, look_up, run


class Berth(BaseModel):
    """Where a ship lies."""

    quay: str
    number: int


def talk():
    """Streams; the framework keeps the history."""

    async def streamed():
        told, history = [], None
        agent = Agent(OpenAIChatModel(MODEL), system_prompt=SYSTEM)
        for question in QUESTIONS:
            async with agent.run_stream(question, message_history=history) as result:
                told.append([text async for text in result.stream_text()][-1])
            history = result.all_messages()
        return told

    return asyncio.run(streamed())


def whole():
    """Whole answers."""
    told, history = [], None
    agent = Agent(OpenAIChatModel(MODEL), system_prompt=SYSTEM)
    for question in QUESTIONS:
        result = agent.run_sync(question, message_history=history)
        told.append(result.output)
        history = result.all_messages()
    return told


def tools():
    """An agent's loop."""
    agent = Agent(OpenAIChatModel(MODEL), system_prompt=SYSTEM, tools=[look_up])
    return [agent.run_sync(TASK).output]


def structured():
    """Objects of a class, which the framework asks for as a call."""
    told, history = [], None
    agent = Agent(OpenAIChatModel(MODEL), system_prompt=SYSTEM, output_type=Berth)
    for question in [*QUESTIONS, SCHEMA_QUESTION]:
        result = agent.run_sync(question, message_history=history)
        told.append(result.output.model_dump())
        history = result.all_messages()
    return told


def responses():
    """The other API."""
    return [Agent(OpenAIResponsesModel(MODEL)).run_sync(QUESTIONS[0]).output]


run(talk=talk, whole=whole, tools=tools, structured=structured, responses=responses)
