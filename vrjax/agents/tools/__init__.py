"""What an agent can do with a video. `TOOLS` are the six of CAViAR; `tool` makes one of a function of your own."""

from vrjax.agents.tools.context import Noted, Spoken, ToolContext, ToolSettings
from vrjax.agents.tools.declaration import Tool, api_text, load_tools, tool
from vrjax.agents.tools.localisation import find_when
from vrjax.agents.tools.retrieval import retrieval_qa
from vrjax.agents.tools.speech import asr_understanding
from vrjax.agents.tools.steps import finish, get_segment, think

TOOLS: tuple[Tool, ...] = (retrieval_qa, get_segment, find_when, asr_understanding, think, finish)
ALWAYS = ("think", "finish")
"""Tools that each strategy has."""

__all__ = [
    "ALWAYS",
    "TOOLS",
    "Noted",
    "Spoken",
    "Tool",
    "ToolContext",
    "ToolSettings",
    "api_text",
    "asr_understanding",
    "find_when",
    "finish",
    "get_segment",
    "load_tools",
    "retrieval_qa",
    "think",
    "tool",
]
