"""smolagents: agents that call and agents that write code, whole and streamed, managed agents, tools of both kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent, tool

from aegis.cli.demo.provider import Call, ScriptedProvider, Turn
from frameworks.model import EVERYTHING, MAIL, Agent, Framework, Way
from support.worlds import World


class Observing(Agent):
    """A world whose model is told results as text, without the ids of their calls."""

    def result_of(self, call: Call) -> Any:
        told: list[str] = []
        for asked in self.asked:
            for message in asked.body["messages"]:
                text = message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
                if text.startswith("Observation:"):
                    told += text.removeprefix("Observation:\n").splitlines()
                elif "Error:" in text:
                    told.append(text)
        about_mail = [line for line in told if "send_email" in line or "withheld" in line or line == "sent"]
        rest = [line for line in told if line in ("text", "[masked]")]
        return (about_mail if call.tool == MAIL.tool else rest)[0]


class Provider(ScriptedProvider):
    """Ends an agent's run in its own way: by a call of `final_answer`."""

    world = Observing

    def __enter__(self) -> Any:
        ended = Call(tool="final_answer", arguments={"answer": "done"})
        self.script = [Turn(calls=(ended,)) if turn.text == "done" else turn for turn in self.script]
        return super().__enter__()


def model(world: World) -> Any:
    return OpenAIModel(model_id="m", api_base=world.provider.url, api_key="k", client_kwargs={"max_retries": 0})


def tools(world: World) -> list[Any]:
    @tool
    def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail.

        Args:
            to: whom
            subject: what
        """
        return world.run("send_email", {"to": to, "subject": subject})

    class ReadFile(Tool):
        name = "read_file"
        description = "Read a file."
        inputs = {"path": {"type": "string", "description": "where"}}  # noqa: RUF012
        output_type = "string"

        def forward(self, path: str) -> str:
            return world.run("read_file", {"path": path})

    return [send_email, ReadFile()]


def agent(world: World, **options: Any) -> str:
    return str(ToolCallingAgent(tools=tools(world), model=model(world), verbosity_level=0, **options).run("go"))


def stream(world: World) -> str:
    made = ToolCallingAgent(tools=tools(world), model=model(world), verbosity_level=0, stream_outputs=True)
    *_, last = made.run("go", stream=True)
    return str(last.output)


def managed(world: World) -> str:
    inner = ToolCallingAgent(
        tools=tools(world), model=model(world), verbosity_level=0, name="delegate", description="d"
    )
    outer = ToolCallingAgent(tools=[], managed_agents=[inner], model=model(world), verbosity_level=0)
    return str(outer.run("go"))


def delegated(turns: Any) -> Any:
    first = Call(tool="delegate", arguments={"task": "go"}, id="call_delegate_012345")
    return [Turn(calls=(first,)), *turns, Turn(text="done")]


def code_agent(world: World, **options: Any) -> Any:
    return CodeAgent(tools=tools(world), model=model(world), verbosity_level=0, max_steps=4, **options)


def code(world: World) -> str:
    return str(code_agent(world).run("go"))


def code_stream(world: World) -> str:
    *_, last = code_agent(world, stream_outputs=True).run("go", stream=True)
    return str(last.output)


def code_managing(world: World) -> str:
    inner = ToolCallingAgent(
        tools=tools(world), model=model(world), verbosity_level=0, name="delegate", description="d"
    )
    outer = CodeAgent(tools=[], managed_agents=[inner], model=model(world), verbosity_level=0, max_steps=4)
    return str(outer.run("go"))


def written(text: str) -> Turn:
    return Turn(text=f"Thought: go\n<code>\n{text}\n</code>")


ENDED = written("final_answer('done')")


def coded(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns as code that goes on when one of its calls fails."""
    made = []
    for turn in turns:
        named = [f"{one.tool}(**{one.arguments!r})" for one in turn.calls]
        lines = [f"try:\n    print({call})\nexcept Exception as error:\n    print(error)" for call in named]
        made.append(written("\n".join(lines)) if lines else ENDED)
    return made


def coded_delegation(turns: Sequence[Turn]) -> Sequence[Turn]:
    return [written("print(delegate(task='go'))"), *turns, ENDED]


class Twice(ToolCallingAgent):
    """An agent that runs every call twice."""

    def execute_tool_call(self, *args: Any, **options: Any) -> Any:
        super().execute_tool_call(*args, **options)
        return super().execute_tool_call(*args, **options)


def again(world: World) -> str:
    return str(Twice(tools=tools(world), model=model(world), verbosity_level=0).run("go"))


def with_class(world: World) -> list[Any]:
    """The tools, the mail as a class."""

    class SendEmail(Tool):
        name = "send_email"
        description = "Send a mail."
        inputs = {"to": {"type": "string", "description": "whom"}}  # noqa: RUF012
        output_type = "string"

        def forward(self, to: str) -> str:
            return world.run("send_email", {"to": to})

    return [SendEmail(), *tools(world)[1:]]


class Direct(ToolCallingAgent):
    """An agent that runs a mail's body itself."""

    def execute_tool_call(self, tool_name: str, arguments: Any) -> Any:
        if tool_name != "send_email":
            return super().execute_tool_call(tool_name, arguments)
        return self.tools[tool_name].forward(**arguments)


class Passing(ToolCallingAgent):
    """An agent that looks on."""

    def execute_tool_call(self, tool_name: str, arguments: Any) -> Any:
        return super().execute_tool_call(tool_name, arguments)


def of(kind: Any) -> Any:
    return lambda world: str(kind(tools=with_class(world), model=model(world), verbosity_level=0).run("go"))


ABLE = EVERYTHING - {"coerces", "broken"}
FRAMEWORK = Framework(
    adapters=("openai", "smolagents"),
    unheard=frozenset({"*"}),
    again=again,
    provide=Provider,
    ways=[
        Way(name="agent", drive=agent, can=ABLE - {"validates"}),
        Way(name="agent stream", drive=stream, can=ABLE - {"validates"}),
        Way(name="managed agent", drive=managed, wrap=delegated, can=ABLE - {"validates"}),
        Way(name="code agent", drive=code, wrap=coded, can=ABLE - {"validates", "ids"}),
        Way(name="code agent stream", drive=code_stream, wrap=coded, can=ABLE - {"validates", "ids"}),
        Way(name="code agent, managed agent", drive=code_managing, wrap=coded_delegation, can=ABLE - {"validates"}),
    ],
    beside={
        "an agent that calls `tool.forward`": of(Direct),
    },
    fair={
        "an agent that looks on": of(Passing),
    },
)
