"""LangChain."""

import asyncio

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from talk import MODEL, QUESTIONS, SCHEMA_QUESTION, SYSTEM, TASK, look_up, run


class Berth(BaseModel):
    """Where a ship lies."""

    quay: str
    number: int


def talk():
    """Streams; the chunks added up are the message that goes back."""
    told, messages, model = [], [SystemMessage(SYSTEM)], ChatOpenAI(model=MODEL)
    for question in QUESTIONS:
        messages.append(HumanMessage(question))
        first, *rest = model.stream(messages)
        reply = sum(rest, first)
        messages.append(reply)
        told.append(reply.text)
    return told


def whole():
    """Whole answers."""
    told, messages, model = [], [SystemMessage(SYSTEM)], ChatOpenAI(model=MODEL)
    for question in QUESTIONS:
        messages.append(HumanMessage(question))
        messages.append(model.invoke(messages))
        told.append(messages[-1].text)
    return told


def concurrent():
    """Three conversations at a time, asynchronously."""

    async def one(model, name):
        told, messages = [], [SystemMessage(f"{SYSTEM} {name}")]
        for question in QUESTIONS:
            messages.append(HumanMessage(question))
            messages.append(await model.ainvoke(messages))
            told.append(messages[-1].text)
        return told

    async def all_of_them():
        model = ChatOpenAI(model=MODEL)
        return await asyncio.gather(*(one(model, name) for name in ("Ada", "Bo", "Cy")))

    told = asyncio.run(all_of_them())
    assert told[0] == told[1] == told[2]
    return told[0]


def tools():
    """An agent's loop."""
    agent = create_agent(ChatOpenAI(model=MODEL), [tool(look_up)], system_prompt=SYSTEM)
    done = agent.invoke({"messages": [HumanMessage(TASK)]}, {"recursion_limit": 100})
    return [done["messages"][-1].text]


def structured():
    """An answer as an object of a class, at the end of a long conversation."""
    told, messages = [], [SystemMessage(SYSTEM)]
    model = ChatOpenAI(model=MODEL)
    shaped = model.with_structured_output(Berth, include_raw=True)
    for question in [*QUESTIONS, SCHEMA_QUESTION]:
        messages.append(HumanMessage(question))
        reply = shaped.invoke(messages)
        messages.append(reply["raw"])
        told.append(reply["parsed"].model_dump())
    return told


def responses():
    """The other API."""
    return [ChatOpenAI(model=MODEL, use_responses_api=True).invoke(QUESTIONS[0]).text]


run(talk=talk, whole=whole, concurrent=concurrent, tools=tools, structured=structured, responses=responses)
