"""smolagents: calling agents, whole and streamed, managed agents, tools of classes and of functions."""

from __future__ import annotations

from typing import Any

from smolagents import OpenAIModel, Tool, ToolCallingAgent, tool

from aegis.cli.demo.provider import ScriptedProvider
from aegis.cli.demo.wire import Call, Turn
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
        return (about_mail if call is MAIL else rest)[0]


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


ABLE = EVERYTHING - {"coerces", "broken"}
FRAMEWORK = Framework(
    adapters=("openai", "smolagents"),
    provide=Provider,
    ways=[
        Way(name="agent", drive=agent, can=ABLE - {"validates"}),
        Way(name="agent stream", drive=stream, can=ABLE - {"validates"}),
        Way(name="managed agent", drive=managed, wrap=delegated, can=ABLE - {"validates"}),
    ],
)
