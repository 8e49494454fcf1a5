"""LangChain and LangGraph: agents, hand-built graphs, tool nodes and loops by hand, over chat models of OpenAI."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware, wrap_tool_call
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Command, interrupt

from aegis.cli.demo.wire import Call, Turn
from frameworks.model import Framework, Way
from support.worlds import World

GO: Any = {"messages": [{"role": "user", "content": "go"}]}


def model(world: World, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=world.provider.url, api_key="k", max_retries=0, **options)


def tools(world: World) -> list[BaseTool]:
    @tool
    def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail."""
        return world.run("send_email", {"to": to, "subject": subject})

    @tool
    def read_file(path: str) -> str:
        """Read a file."""
        return world.run("read_file", {"path": path})

    @tool
    def book(count: int, item: str = "tea") -> str:
        """Book something."""
        return world.run("book", {"count": count, "item": item})

    return [send_email, read_file, book]


def async_tools(world: World) -> list[BaseTool]:
    def asynchronous(one: Any) -> BaseTool:
        async def body(**given: Any) -> Any:
            return one.func(**given)

        return StructuredTool(name=one.name, description=one.description, args_schema=one.args_schema, coroutine=body)

    return [asynchronous(one) for one in tools(world)]


def last(state: Any) -> str:
    return str(state["messages"][-1].text)


def invoke(world: World) -> str:
    return last(create_agent(model(world), tools(world)).invoke(GO))


def responses(world: World) -> str:
    return last(create_agent(model(world, use_responses_api=True), tools(world)).invoke(GO))


def ainvoke(world: World) -> str:
    return last(asyncio.run(create_agent(model(world), tools(world)).ainvoke(GO)))


def ainvoke_async_tools(world: World) -> str:
    return last(asyncio.run(create_agent(model(world), async_tools(world)).ainvoke(GO)))


def stream(world: World) -> str:
    agent = create_agent(model(world, streaming=True), tools(world))
    return last(list(agent.stream(GO, stream_mode="values"))[-1])


def astream(world: World) -> str:
    async def run() -> Any:
        agent = create_agent(model(world, streaming=True), async_tools(world))
        return [state async for state in agent.astream(GO, stream_mode="values")][-1]

    return last(asyncio.run(run()))


def astream_events(world: World) -> str:
    async def run() -> Any:
        agent = create_agent(model(world), tools(world))
        return [event async for event in agent.astream_events(GO, version="v2")][-1]["data"]["output"]

    return last(asyncio.run(run()))


def retries(world: World) -> str:
    agent = create_agent(model(world), tools(world), middleware=[ToolRetryMiddleware(max_retries=2, initial_delay=0)])
    return last(agent.invoke(GO))


def prebuilt(world: World) -> str:
    return last(create_react_agent(model(world), tools(world)).invoke(GO))


def graph(world: World) -> Any:
    bound = model(world).bind_tools(tools(world))
    builder = StateGraph(MessagesState)
    builder.add_node("chatbot", lambda state: {"messages": [bound.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools(world)))
    builder.add_edge(START, "chatbot")
    builder.add_conditional_edges("chatbot", tools_condition)
    builder.add_edge("tools", "chatbot")
    return builder


def own_graph(world: World) -> str:
    return last(graph(world).compile().invoke(GO))


def sub_agent(world: World) -> str:
    @tool
    def delegate(question: str) -> str:
        """Ask the helper."""
        return last(create_agent(model(world), tools(world)).invoke(GO))

    return last(create_agent(model(world), [delegate]).invoke(GO))


def delegated(turns: Sequence[Turn]) -> Sequence[Turn]:
    first = Call(tool="delegate", arguments={"question": "go"}, id="call_delegate_012345")
    return [Turn(calls=(first,)), *turns, Turn(text="done")]


def paused(world: World) -> str:
    """An agent that is stopped before its tools, and resumed."""
    agent = create_agent(model(world), tools(world), checkpointer=InMemorySaver(), interrupt_before=["tools"])
    config: Any = {"configurable": {"thread_id": "t"}}
    state = agent.invoke(GO, config)
    while agent.get_state(config).next:
        state = agent.invoke(None, config)
    return last(state)


def by_hand(world: World) -> str:
    """A loop that runs the tools itself, by their calls."""
    named = {one.name: one for one in tools(world)}
    bound = model(world).bind_tools(list(named.values()))
    messages: list[Any] = [HumanMessage("go")]
    for _ in range(6):
        answer = bound.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        messages += [named[call["name"]].invoke(call) for call in answer.tool_calls]
    return str(messages[-1].text)


def again(world: World) -> str:
    """Middleware that runs every call twice, and is itself run again after an interrupt."""

    @wrap_tool_call
    def twice(request: Any, handler: Any) -> Any:
        handler(request)
        interrupt("look")
        return handler(request)

    agent = create_agent(model(world), tools(world), middleware=[twice], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    state = agent.invoke(GO, config)
    while agent.get_state(config).next:
        answers = {one.id: "ok" for one in agent.get_state(config).interrupts}
        state = agent.invoke(Command(resume=answers), config)
    return last(state)


FRAMEWORK = Framework(
    adapters=("openai", "langchain"),
    ways=[
        Way(name="agent", drive=invoke),
        Way(name="agent over responses", drive=responses),
        Way(name="agent async", drive=ainvoke),
        Way(name="agent async, async tools", drive=ainvoke_async_tools),
        Way(name="agent stream", drive=stream),
        Way(name="agent stream async", drive=astream),
        Way(name="agent events", drive=astream_events),
        Way(name="agent with retries", drive=retries),
        Way(name="react agent", drive=prebuilt),
        Way(name="own graph", drive=own_graph),
        Way(name="sub-agent", drive=sub_agent, wrap=delegated),
        Way(name="agent paused and resumed", drive=paused),
    ],
    again=again,
)
