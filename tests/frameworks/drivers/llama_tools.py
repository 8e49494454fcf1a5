"""Tools of LlamaIndex that are no functions; what they are asked is noted."""

from __future__ import annotations

from typing import Any

from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import BaseTool, ToolMetadata, ToolOutput

ASKED: list[str] = []


class Engine(CustomQueryEngine):
    def custom_query(self, query_str: str) -> str:
        ASKED.append(query_str)
        return "found"


class Retriever(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        ASKED.append(query_bundle.query_str)
        return [NodeWithScore(node=TextNode(text="found"))]


class Bare(BaseTool):
    """A tool that defines nothing but its call."""

    metadata = ToolMetadata("d", name="search")

    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002
        ASKED.append(input)
        return ToolOutput(content="found", tool_name="search", raw_input={"input": input}, raw_output="found")


class Derived(Bare):
    """One that calls its base with the same."""

    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002
        return super().__call__(input)
