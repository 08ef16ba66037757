"""What a person read in Hugging Face's models: facts of BERT, Llama and ResNet."""

from __future__ import annotations

from tests.cases.facts.claims import Fact, Order
from tests.cases.facts.gpt import Facts

LAYERS = 2


def _layers(pattern: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{pattern.format(layer)}{name}" for layer in range(LAYERS) for name in names)


def _bert() -> Facts:
    layer = "bert.encoder.layer.{}."
    # Query, key and value need nothing of one another, so only what follows them has an order.
    chain = _layers(layer, "attention.output.dense", "intermediate.dense", "output.dense")
    chain = (*chain, "cls.predictions.transform.dense", "cls.predictions.decoder")
    asked = _layers(layer, *(f"attention.self.{name}" for name in ("query", "key", "value")))
    attended, attentions = ("scaled_dot_product_attention(",), _layers(layer, "attention.self")
    acts = _layers(layer, "intermediate.intermediate_act_fn")
    acts = (*acts, "cls.predictions.transform.transform_act_fn")
    embeddings = tuple(
        f"bert.embeddings.{name}_embeddings" for name in ("word", "token_type", "position")
    )
    looked_up = (
        "self.word_embeddings(",
        "self.token_type_embeddings(",
        "self.position_embeddings(",
    )
    norms = (
        "bert.embeddings.LayerNorm",
        *_layers(layer, "attention.output.LayerNorm", "output.LayerNorm"),
        "cls.predictions.transform.LayerNorm",
    )
    dropouts = _layers(layer, "attention.output.dropout", "output.dropout")
    linears = (
        "query_layer = self.query(",
        "key_layer = self.key(",
        "value_layer = self.value(",
        "hidden_states = self.dense(",
        "hidden_states = self.decoder(",
    )
    loss = ("loss_fct(prediction_scores",)
    return (
        Fact("aten.addmm.default", "forward", linears, (*asked, *chain)),
        Order("aten.addmm.default", "forward", chain),
        Order("aten.mm.default", "backward", chain[::-1]),
        Fact("aten.bmm.default", "forward", attended, attentions),
        Fact("aten.bmm.default", "backward", attended, attentions, ("bmm",)),
        Order("aten.bmm.default", "forward", attentions),
        Order("aten.bmm.default", "backward", attentions[::-1]),
        Fact("aten.gelu.default", "forward", ("return self.act(input)",), acts),
        Fact("aten.gelu_backward.default", "backward", ("return self.act(input)",), acts),
        Fact("aten.embedding.default", "forward", looked_up, embeddings),
        Fact("aten.embedding_dense_backward.default", "backward", looked_up, embeddings),
        Fact("aten.native_layer_norm.default", "forward", ("self.LayerNorm(",), norms),
        Fact("aten.native_layer_norm_backward.default", "backward", ("self.LayerNorm(",), norms),
        Fact(
            "aten.native_dropout.default",
            "forward",
            ("= self.dropout(", "scaled_dot_product_attention("),
            ("bert.embeddings.dropout", *dropouts, *attentions),
        ),
        Fact("aten.nll_loss_forward.default", "forward", loss),
        Fact("aten.nll_loss_backward.default", "backward", loss),
    )


def _llama() -> Facts:
    layer = "model.layers.{}."
    chain = (*_layers(layer, "self_attn.o_proj", "mlp.down_proj"), "lm_head")
    others = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj")
    linears = (*chain, *_layers(layer, *others, "mlp.up_proj"))
    lines = (
        "query_states = self.q_proj(",
        "key_states = self.k_proj(",
        "value_states = self.v_proj(",
        "attn_output = self.o_proj(",
        "self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))",
        "self.lm_head(",
    )
    sdpa, attentions = "_scaled_dot_product_efficient_attention", _layers(layer, "self_attn")
    attended = ("scaled_dot_product_attention(",)
    norms = _layers(layer, "input_layernorm", "post_attention_layernorm")
    embedded = ("self.embed_tokens(input_ids)",)
    return (
        Fact("aten.mm.default", "forward", lines, linears),
        Fact("aten.mm.default", "backward", lines, linears),
        Order("aten.mm.default", "forward", chain),
        Order("aten.mm.default", "backward", chain[::-1]),
        Fact(f"aten.{sdpa}.default", "forward", attended, attentions),
        Fact(f"aten.{sdpa}_backward.default", "backward", attended, attentions, (sdpa,)),
        Order(f"aten.{sdpa}.default", "forward", attentions),
        Order(f"aten.{sdpa}_backward.default", "backward", attentions[::-1]),
        Fact("aten.cos.default", "forward", ("cos = emb.cos()",), ("model.rotary_emb",)),
        Fact("aten.sin.default", "forward", ("sin = emb.sin()",), ("model.rotary_emb",)),
        Fact(
            "aten.rsqrt.default",
            "forward",
            ("torch.rsqrt(variance + self.variance_epsilon)",),
            (*norms, "model.norm"),
        ),
        Fact(
            "aten.silu.default",
            "forward",
            ("functional.silu(input)",),
            _layers(layer, "mlp.act_fn"),
        ),
        Fact("aten.embedding.default", "forward", embedded, ("model.embed_tokens",)),
        Fact(
            "aten.embedding_dense_backward.default",
            "backward",
            embedded,
            ("model.embed_tokens",),
            ("embedding",),
        ),
        Fact("aten.nll_loss_forward.default", "forward", ("functional.cross_entropy(",)),
        Fact("aten.nll_loss_backward.default", "backward", ("functional.cross_entropy(",)),
    )


def _resnet() -> Facts:
    stages = "resnet.encoder.stages."
    layers = ("0.layers.0", "1.layers.0", "1.layers.1")  # one in the first stage, two in the second
    chain = tuple(f"{stages}{layer}.layer.{at}.convolution" for layer in layers for at in (0, 1))
    chain = ("resnet.embedder.embedder.convolution", *chain)
    shortcut = f"{stages}1.layers.0.shortcut.convolution"  # only there the widths differ
    lines = ("self.convolution(hidden_states)", "self.convolution(input)")
    convolved = (*chain, shortcut)
    # A convolution's gradients stand at the node of the convolution itself.
    return (
        Fact("aten.convolution.default", "forward", lines, convolved),
        Order("aten.convolution.default", "forward", chain),
        Fact("aten.convolution_backward.default", "backward", lines, convolved, ("convolution",)),
        Order("aten.convolution_backward.default", "backward", chain[::-1]),
        Fact(
            "aten.max_pool2d_with_indices.default",
            "forward",
            ("embedding = self.pooler(embedding)",),
            ("resnet.embedder.pooler",),
        ),
        Fact(
            "aten.max_pool2d_with_indices_backward.default",
            "backward",
            ("embedding = self.pooler(embedding)",),
            ("resnet.embedder.pooler",),
        ),
        Fact("aten.mean.dim", "forward", ("self.pooler(last_hidden_state)",), ("resnet.pooler",)),
        Fact(
            "aten.addmm.default", "forward", ("self.classifier(pooled_output)",), ("classifier.1",)
        ),
        Fact("aten.mm.default", "backward", ("self.classifier(pooled_output)",), ("classifier.1",)),
    )


def _convnext() -> Facts:
    stages = "convnext.encoder.stages."
    depths = (1, 1, 2, 1)
    chain, linears = ["convnext.embeddings.patch_embeddings"], []
    for stage, depth in enumerate(depths):
        if stage:  # the first stage is as wide as what runs into it
            chain.append(f"{stages}{stage}.downsampling_layer.1")
        for layer in range(depth):
            chain.append(f"{stages}{stage}.layers.{layer}.dwconv")
            linears += [f"{stages}{stage}.layers.{layer}.pwconv{at}" for at in (1, 2)]
    linears.append("classifier")
    convolutions, linears = tuple(chain), tuple(linears)
    lines = ("self.patch_embeddings(pixel_values)", "self.dwconv(", "layer(")
    calls = ("self.pwconv1(", "self.pwconv2(", "self.classifier(")
    return (
        Fact("aten.convolution.default", "forward", lines, convolutions),
        Order("aten.convolution.default", "forward", convolutions),
        Fact(
            "aten.convolution_backward.default", "backward", lines, convolutions, ("convolution",)
        ),
        Order("aten.convolution_backward.default", "backward", convolutions[::-1]),
        Fact("aten.addmm.default", "forward", calls, linears),
        Order("aten.addmm.default", "forward", linears),
        Fact("aten.mm.default", "backward", calls, linears),
        Order("aten.mm.default", "backward", linears[::-1]),
        Fact("aten.mean.dim", "forward", ("last_hidden_state.mean([-2, -1])",), ("convnext",)),
    )


CONVNEXT = _convnext()
BERT, LLAMA, RESNET = _bert(), _llama(), _resnet()
