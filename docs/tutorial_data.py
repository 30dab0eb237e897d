"""Write the two made-up data sets of docs/tutorial.md: reviews.csv and places.json (SQuAD 2.0 format)."""

import csv
import json
import random
from pathlib import Path

THINGS = ["lamp", "kettle", "backpack", "keyboard", "tent", "blender", "chair", "watch", "radio", "drill"]
GOOD = ["works perfectly", "feels solid", "looks lovely", "is easy to clean", "was worth the money", "surprised us all"]
BAD = ["broke within a week", "smells of glue", "is far too loud", "arrived scratched", "wobbles", "stopped charging"]
FORMS = {
    "happy": ["The {t} {g} and {h}.", "The {t} {b} at first, but now it {g}.", "The {t} {b}, but {g} and {h}."],
    "unhappy": ["The {t} {b} and {c}.", "The {t} {g} at first, but then it {b}.", "The {t} {g}, but {b} and {c}."],
}

NAMES = ["Ada Brandt", "Ilya Moreau", "Rosa Lind", "Tom Achebe", "Mei Kato", "Nils Okafor", "Eva Silva", "Omar Haas"]
TOWNS = ["Varn", "Lissow", "Oakmere", "Port Hale", "Tresk", "Dunholm", "Calvi", "Brisby", "Norvik", "Elmet"]
KINDS = ["museum", "library", "mill", "theatre", "bridge", "school", "station", "garden"]
FACTS = [
    ("It was designed by {}.", "Who designed the {} of {}?", lambda: random.choice(NAMES)),
    ("Work began in {}.", "When did work begin on the {} of {}?", lambda: str(random.randint(1700, 1950))),
    ("It cost {} crowns.", "How much did the {} of {} cost?", lambda: f"{random.randint(2, 99)},000"),
    ("Every year {} people come.", "How many people visit the {} of {}?", lambda: f"{random.randint(2, 99)}00"),
]


def review() -> tuple[str, str]:
    """A text and its label, which is wrong once in ten times."""
    opinion = random.choice(list(FORMS))
    (g, h), (b, c) = random.sample(GOOD, 2), random.sample(BAD, 2)
    text = random.choice(FORMS[opinion]).format(t=random.choice(THINGS), g=g, h=h, b=b, c=c)
    return text, random.choice(list(FORMS)) if random.random() < 0.2 else opinion


def article(town: str, kind: str) -> dict[str, object]:
    """A short text and four questions about it, of which about one in three has no answer in the text."""
    context, questions = f"The {kind} of {town} is well known.", []
    for number, (sentence, question, draw) in enumerate(FACTS):
        answers = []
        if random.random() < 0.65:
            text = draw()
            answers = [{"text": text, "answer_start": len(context) + 1 + sentence.index("{}")}]
            context += " " + sentence.format(text)
        entry = {"id": f"{town}-{kind}-{number}", "question": question.format(kind, town)}
        questions.append({**entry, "is_impossible": not answers, "answers": answers})
    return {"title": f"{kind} of {town}", "paragraphs": [{"context": context, "qas": questions}]}


if __name__ == "__main__":
    random.seed(0)
    with Path("reviews.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("review", "opinion"), *(review() for _ in range(1000))])
    articles = [article(town, kind) for town in TOWNS for kind in KINDS]
    Path("places.json").write_text(json.dumps({"version": "v2.0", "data": articles}), encoding="utf-8")
