"""Transformer-XL and Synthesizer language models for TensorFlow.

The alphabet of shapes, the same in every docstring and einsum: B batch, T segment, M memory, S = M+T, N heads, H head
size, D model, L layers, V vocabulary. Batch comes first.
"""

import logging
import os
import sys

from data_utils.interrupts import end_at_interrupt

if sys.argv[:1] == ["-m"]:  # python -m txl_tf.NAME: a command, whose user TensorFlow's remarks are not for
    end_at_interrupt("txl_tf")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)

from txl_tf.added_tokens import add_tokens
from txl_tf.attention.dense_synthesizer import DenseSynthesizer
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.factorized_dense_synthesizer import FactorizedDenseSynthesizer
from txl_tf.attention.factorized_random_synthesizer import FactorizedRandomSynthesizer
from txl_tf.attention.mixture_synthesizer import MixtureSynthesizer
from txl_tf.attention.random_synthesizer import RandomSynthesizer
from txl_tf.attention.relative import RelativeMultiHeadAttention
from txl_tf.attention.shaw import ShawMultiHeadAttention
from txl_tf.backbone import TransformerXLBackbone
from txl_tf.checkpoints.huggingface import load_huggingface, save_huggingface
from txl_tf.checkpoints.pytorch import load_pytorch_checkpoint
from txl_tf.checkpoints.tf1 import load_tf1_checkpoint, save_tf1_checkpoint
from txl_tf.config import DataConfig, ModelConfig, TrainConfig
from txl_tf.heads.adaptive_softmax import AdaptiveSoftmax
from txl_tf.heads.full_softmax import FullSoftmax
from txl_tf.language_model import TransformerXLLM
from txl_tf.layers.absolute_positions import AbsolutePositions
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.conv_feed_forward import ConvFeedForward
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.layers.transformer_block import TransformerXLBlock
from txl_tf.model_folder import load_vocabulary
from txl_tf.optimization import WarmupCosine
from txl_tf.presets import preset_config
from txl_tf.sample_printer import SamplePrinter
from txl_tf.saved_model import export_saved_model
from txl_tf.segment_trainer import SegmentTrainer
