"""Which tensors an app has follows from its inputs and its answers; nobody declares them twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from failsoft.errors import BadRequestError
from failsoft.serving import AnswerForm, Classification, ConstantRung, Instances, Regression, Tagging
from failsoft.serving.intake.inputs import Texts
from failsoft.serving.seam import Quality
from failsoft.serving.task import Task
from failsoft.serving.web.protocol.columns import InputForm, input_form
from failsoft.serving.web.protocol.outputs import output_form, own_output
from failsoft.serving.web.protocol.tensors import Tensor


class Flat(BaseModel):
    metres: float
    rooms: int
    street: str
    balcony: bool = False
    corners: list[float] = []
    owner: dict[str, str] = {}


def form_of(schema: Any) -> InputForm:
    return input_form(Instances(schema=schema))


def cards(form: InputForm) -> list[tuple[str, str, list[int]]]:
    return [(card["name"], card["datatype"], card["shape"]) for card in (column.card() for column in form.columns)]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (float, [("instance", "FP64", [-1])]),
        (list[float], [("instance", "FP64", [-1, -1])]),
        (tuple[float, int, float], [("instance", "FP64", [-1, 3])]),
        (list[int], [("instance", "INT64", [-1, -1])]),
        (str, [("instance", "BYTES", [-1])]),
        (Any, [("instance", "BYTES", [-1])]),
        (dict[str, float], [("instance", "BYTES", [-1])]),
        (list[list[float]], [("instance", "BYTES", [-1])]),
        (float | None, [("instance", "BYTES", [-1])]),
        (
            Flat,
            [
                ("metres", "FP64", [-1]),
                ("rooms", "INT64", [-1]),
                ("street", "BYTES", [-1]),
                ("balcony", "BOOL", [-1]),
                ("corners", "FP64", [-1, -1]),
                ("owner", "BYTES", [-1]),
            ],
        ),
    ],
)
def test_the_inputs_of_an_app_follow_from_its_schema(schema: Any, expected: list[tuple[str, str, list[int]]]) -> None:
    assert cards(form_of(schema)) == expected


def test_texts_are_one_tensor_of_bytes() -> None:
    assert cards(input_form(Texts())) == [("text", "BYTES", [-1])]


def tensor(name: str, datatype: str, shape: tuple[int, ...], values: list[Any]) -> Tensor:
    return Tensor(name=name, datatype=datatype, shape=shape, values=values)


def test_objects_are_put_together_from_their_fields_and_may_lack_what_has_a_default() -> None:
    given = [
        tensor("metres", "FP32", (2,), [70.0, 45.0]),
        tensor("rooms", "INT8", (2, 1), [3, 2]),
        tensor("street", "BYTES", (2,), [b"Elm", "Oak \ud83d"]),
        tensor("corners", "FP64", (2, 2), [1.0, 2.0, 3.0, 4.0]),
        tensor("owner", "BYTES", (2,), [b'{"name": "Ann"}', "{}"]),
    ]
    assert form_of(Flat).items(given) == [
        {"metres": 70.0, "rooms": 3, "street": "Elm", "corners": [1.0, 2.0], "owner": {"name": "Ann"}},
        {"metres": 45.0, "rooms": 2, "street": "Oak \ud83d", "corners": [3.0, 4.0], "owner": {}},
    ]


def test_where_anything_goes_numbers_are_rows_and_documents_are_read() -> None:
    anything = form_of(Any)
    assert anything.items([tensor("instance", "INT32", (2, 2), [1, 2, 3, 4])]) == [[1, 2], [3, 4]]
    assert anything.items([tensor("instance", "BYTES", (2,), [b'{"a": [1]}', "null"])]) == [{"a": [1]}, None]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([tensor("instance", "FP64", (2,), [1.0, 2.0])], r"shape \[2\]; send it as \[items, values\]"),
        ([tensor("instance", "FP64", (1, 1, 2), [1.0, 2.0])], "shape"),
        ([tensor("instance", "FP64", (2**62, 0), [])], "0 items"),
        ([tensor("instance", "BYTES", (1, 1), [b"x"])], "send it as FP64"),
        ([], "instance' is absent"),
    ],
)
def test_rows_of_another_form_are_refused_in_words(given: list[Tensor], words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        form_of(list[float]).items(given)


def test_a_document_that_is_none_and_inputs_of_unequal_length_are_refused() -> None:
    with pytest.raises(BadRequestError, match="no JSON document"):
        form_of(Any).items([tensor("instance", "BYTES", (1,), [b"[" * 50_000])])
    with pytest.raises(BadRequestError, match=r"\[1, 2\] items"):
        form_of(Flat).items(
            [
                tensor("metres", "FP64", (2,), [1.0, 2.0]),
                tensor("rooms", "INT64", (1,), [1]),
                tensor("street", "BYTES", (1,), [b"a"]),
            ]
        )


@pytest.mark.parametrize(
    ("quality", "form", "datatype"),
    [
        (Classification(labels=("a", "b")), AnswerForm(), "BYTES"),
        (Classification(), AnswerForm(), "INT64"),
        (Regression(tolerance=1.0), AnswerForm(), "FP64"),
        (Tagging(labels=("O", "B-x")), AnswerForm(entities=True), "BYTES"),
        (Tagging(labels=("O", "B-x")), AnswerForm(output=bool), "BOOL"),
        (Regression(tolerance=1.0), AnswerForm(output=dict[str, float]), "FP64"),
    ],
)
def test_the_output_is_of_the_declared_type_or_of_what_its_quality_gives(
    quality: Quality, form: AnswerForm, datatype: str
) -> None:
    task = Task(rungs=lambda _bundle: [ConstantRung("?")], quality=quality, answers=form)
    own, *others = output_form(task).cards()
    assert (own["name"], own["datatype"]) == ("output", datatype)
    assert ("entities" in {card["name"] for card in others}) == form.entities


@pytest.mark.parametrize(
    ("declared", "values", "datatype", "shape", "found"),
    [
        ("FP64", [1, 2.5], "FP64", (2,), [1.0, 2.5]),
        ("INT64", [3, 4], "INT64", (2,), [3, 4]),
        ("INT64", ["unknown", "a"], "BYTES", (2,), ["unknown", "a"]),
        ("INT64", ["unknown", 4], "BYTES", (2,), ["unknown", "4"]),
        ("BYTES", [True, False], "BOOL", (2,), [True, False]),
        ("FP64", [[1, 2.0], [3.0, 4]], "FP64", (2, 2), [1.0, 2.0, 3.0, 4.0]),
        ("BYTES", [["O", "B-x"], []], "BYTES", (2,), ['["O","B-x"]', "[]"]),
        ("BYTES", [{"a": None}, None], "BYTES", (2,), ['{"a":null}', "null"]),
        ("INT64", [2**70], "BYTES", (1,), [json.dumps(2**70)]),
    ],
)
def test_outputs_that_are_no_values_of_the_declared_type_go_as_what_they_are(
    declared: str, values: list[Any], datatype: str, shape: tuple[int, ...], found: list[Any]
) -> None:
    own = own_output("output", declared, values)
    assert (own.datatype, own.shape, list(own.values)) == (datatype, shape, found)
