"""The trigger forms refuse what no catalog can hold."""

import pytest
from airflow.sdk.exceptions import ParamValidationError
from statelib_airflow.dags.forms import dispose_form, restore_form

LARGEST = 10**18 - 1


def test_an_id_in_a_form_fits_into_the_catalog() -> None:
    for param in (dispose_form()["savepoint"], restore_form(128)["checkpoint"]):
        assert param.resolve(value=str(LARGEST)) == str(LARGEST)
        with pytest.raises(ParamValidationError):
            param.resolve(value=str(LARGEST + 1))
