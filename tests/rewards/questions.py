"""Questions and responses that the tests share."""

from vrjax.records import Question, TimedText, VideoMetadata, VideoRecord
from vrjax.rewards import RewardPrompt, RewardRecord


def record(answer="The boat is pulled ashore.", evidence=((10, 20, "a"), (30, 50, "b")), number=1) -> RewardRecord:
    pieces = tuple(TimedText(timestamp=(start, end), description=text) for start, end, text in evidence)
    question = Question(question_id=f"q{number}", question=f"What happens ({number})?", answer=answer, evidence=pieces)
    metadata = VideoMetadata(title="At the pier", segments=pieces)
    video = VideoRecord(video_id="v", video_path="v.mp4", duration=100.0, metadata=metadata, questions=(question,))
    return RewardRecord(video, question)


def prompt(number=1) -> RewardPrompt:
    return RewardPrompt(f"What happens ({number})?", f"v/q{number}")


def response(answer="The boat is pulled ashore.", lines=((12, 22, "c"), (28, 40, "d"), (60, 70, "e")), extra="") -> str:
    evidence = "".join(f"Time:00:{start:02}-00:{end:02}, Des: {text}\n" for start, end, text in lines)
    evidence = evidence.replace("00:60-00:70", "01:00-01:10")
    return f"<evidence>\n{evidence}{extra}</evidence>\n<think>So.</think>\n<answer>{answer}</answer>"
