import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from vrjax.models.log_probs import token_log_probs
from vrjax.training.losses import weighted_nll


def _case(batch: int, count: int, width: int, vocabulary: int):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(batch, count, width)).astype(np.float32)
    head = rng.normal(size=(vocabulary, width)).astype(np.float32)
    return hidden, head, rng.integers(0, vocabulary, (batch, count))


@pytest.mark.parametrize("chunk", [1, 7, 20, 64, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_equal_torch(chunk: int, temperature: float) -> None:
    hidden, head, targets = _case(3, 21, 16, 50)
    logits = torch.from_numpy(hidden).double() @ torch.from_numpy(head).double().T / temperature
    distribution = torch.distributions.Categorical(logits=logits)

    log_probs, entropy = token_log_probs(
        jnp.asarray(hidden), jnp.asarray(head), jnp.asarray(targets), temperature, chunk=chunk
    )

    np.testing.assert_allclose(log_probs, distribution.log_prob(torch.from_numpy(targets)).numpy(), atol=2e-5)
    np.testing.assert_allclose(entropy, distribution.entropy().numpy(), atol=2e-5)


def _gradient(tensor: torch.Tensor) -> np.ndarray:
    assert tensor.grad is not None
    return tensor.grad.numpy()


def test_gradients_of_chunks_equal_torchs_cross_entropy() -> None:
    hidden, head, targets = _case(2, 13, 8, 30)
    weights = np.random.default_rng(1).integers(0, 2, (2, 13)).astype(np.float32)

    def loss(hidden, head):
        log_probs, _ = token_log_probs(hidden, head, jnp.asarray(targets), chunk=6)
        nll, weight = weighted_nll(log_probs, jnp.asarray(weights))
        return nll / weight

    value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(jnp.asarray(hidden), jnp.asarray(head))

    hidden_t, head_t = (torch.tensor(array, requires_grad=True) for array in (hidden, head))
    each = torch.nn.functional.cross_entropy(
        (hidden_t @ head_t.T).reshape(-1, 30), torch.from_numpy(targets).reshape(-1), reduction="none"
    )
    expected = (each * torch.from_numpy(weights).reshape(-1)).sum() / weights.sum()
    expected.backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(gradients[0], _gradient(hidden_t), atol=1e-6)
    np.testing.assert_allclose(gradients[1], _gradient(head_t), atol=1e-6)


def test_one_row_form_equals_the_batched_one() -> None:
    hidden, head, targets = _case(1, 9, 8, 30)
    batched = token_log_probs(jnp.asarray(hidden), jnp.asarray(head), jnp.asarray(targets))
    single = token_log_probs(jnp.asarray(hidden[0]), jnp.asarray(head), jnp.asarray(targets[0]))
    np.testing.assert_array_equal(batched[0][0], single[0])


def test_no_array_of_all_tokens_by_vocabulary() -> None:
    """4,096 tokens x 5,000 words in chunks of 256: no float array in the program is larger than a chunk's logits."""
    tokens, vocabulary = 4096, 5000
    hidden = jax.ShapeDtypeStruct((1, tokens, 4), jnp.float32)
    head = jax.ShapeDtypeStruct((vocabulary, 4), jnp.float32)
    targets = jax.ShapeDtypeStruct((1, tokens), jnp.int32)

    def loss(hidden, head, targets):
        return -token_log_probs(hidden, head, targets, chunk=256)[0].sum()

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(hidden, head, targets).compile()

    memory = compiled.memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 0.35 * tokens * vocabulary * 4
