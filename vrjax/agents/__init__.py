"""An agent that answers questions about videos by writing programs over tools, and a critic that chooses (CAViAR).

    with Sandbox(tools={"add": add}, time_limit_s=5) as sandbox:
        sandbox.run("print(add(1, 2))")

`VideoAgent` answers questions; `tool` makes a tool of a typed function; `replay` repeats a recorded run.
"""

from vrjax.agents.agent import AgentSettings
from vrjax.agents.critic import CriticExample, CriticSettings
from vrjax.agents.frame_store import FrameStore, Sampling
from vrjax.agents.modes import MODES, Mode
from vrjax.agents.question import Task, VideoAgent
from vrjax.agents.replay import replay
from vrjax.agents.sandbox import Limits, ProgramEnd, Sandbox, StepResult, Workers
from vrjax.agents.tools import TOOLS, Tool, ToolContext, ToolSettings, find_when, load_tools, retrieval_qa, tool
from vrjax.agents.trace import QuestionRun, Step, ToolCall, Trace, Verdict
from vrjax.agents.trace_file import read_traces, run_questions
from vrjax.agents.video_handle import Video

__all__ = [
    "MODES",
    "TOOLS",
    "AgentSettings",
    "CriticExample",
    "CriticSettings",
    "FrameStore",
    "Limits",
    "Mode",
    "ProgramEnd",
    "QuestionRun",
    "Sampling",
    "Sandbox",
    "Step",
    "StepResult",
    "Task",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolSettings",
    "Trace",
    "Verdict",
    "Video",
    "VideoAgent",
    "Workers",
    "find_when",
    "load_tools",
    "read_traces",
    "replay",
    "retrieval_qa",
    "run_questions",
    "tool",
]
