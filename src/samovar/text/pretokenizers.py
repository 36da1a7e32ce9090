"""How byte-level vocabularies cut text before merging, by the name a GGUF file gives (`tokenizer.ggml.pre`).

Each rule is a fact about a published tokenizer.json, stated with its model: the regular expressions are applied one
after the other, each cutting the pieces of the one before into matches and what lies between them. A wrong rule gives
valid but untrained ids, so a name that is not here is refused rather than guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from samovar.base.errors import UnsupportedFeature

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# The tail has no `|\s+`: what no alternative matches is a piece as well.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
# Cased letters as DeepSeek-LLM's file lists them: general categories Lu, Ll and Lt of an older Unicode, with gaps.
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
    "\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way of cutting. The flags are defaults that hold where a file does not say otherwise."""

    patterns: tuple[str, ...]
    nfc: bool = False
    """Text is brought to Unicode normal form C first."""
    ignore_merges: bool = False
    """A piece that is a token as a whole becomes that token, whatever the merges say."""
    adds_bos: bool = False


# llama.cpp's rule for files that name no other; SmolLM's published rule and GPT-2's are separate rules below.
_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
# openai-community/gpt2
_GPT2_RULE = PreTokenizer((_GPT2,))
# HuggingFaceTB/SmolLM2, bigcode/starcoder: every digit on its own, then GPT-2's rule.
_SINGLE_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
# meta-llama/Llama-3.1
_LLAMA3 = PreTokenizer((rf"{_WORDS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_TAIL}",), ignore_merges=True, adds_bos=True)
# THUDM/glm-4, databricks/dbrx: the same cut, ordinary merges.
_CL100K = PreTokenizer(_LLAMA3.patterns)
# Qwen/Qwen2.5, Qwen/Qwen3
_QWEN2 = PreTokenizer((rf"{_WORDS}|\p{{N}}|{_SYMBOLS}|{_TAIL}",), nfc=True)
# Qwen/Qwen3.5: combining marks belong to words.
_QWEN35 = PreTokenizer(
    (rf"{_CONTRACTIONS}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}",), nfc=True
)
# mistralai/Mistral-Nemo-Instruct-2407
_TEKKEN = PreTokenizer(
    (
        rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}",
    ),
    ignore_merges=True,
    adds_bos=True,
)
# openai/gpt-oss-20b (o200k)
_GPT4O = PreTokenizer(
    (
        rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}",
    )
)
# deepseek-ai/deepseek-llm-7b-chat
_DEEPSEEK_LLM = PreTokenizer(
    (
        r"[\r\n]",
        rf"\s?[{_CASED}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        r"\p{N}+",
    )
)
# deepseek-ai/deepseek-coder-6.7b-instruct
_DEEPSEEK_CODER = PreTokenizer(
    (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")
)
# deepseek-ai/DeepSeek-V3, DeepSeek-R1
_DEEPSEEK_V3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}",
    )
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _DEFAULT,
    "gpt-2": _GPT2_RULE,
    "phi-2": _GPT2_RULE,
    "olmo": _GPT2_RULE,
    "mpt": _GPT2_RULE,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "pixtral": _LLAMA3,
    "lfm2": _LLAMA3,
    "chatglm-bpe": _CL100K,
    "glm4": _CL100K,
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": _QWEN35,
    "tekken": _TEKKEN,
    "gpt-4o": _GPT4O,
    "llama4": _GPT4O,
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-v3": _DEEPSEEK_V3,
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """Raises UnsupportedFeature for a name without a rule."""
    rule = PRE_TOKENIZERS.get(name)
    if rule is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnsupportedFeature(f"tokenizer.ggml.pre is {name!r}: no rule for it; known: {known}")
    return rule


def build_pre_tokenizer(rule: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """The cuts, then bytes to GPT-2's alphabet."""
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def build_normalizer(rule: PreTokenizer) -> normalizers.Normalizer | None:
    return normalizers.NFC() if rule.nfc else None
