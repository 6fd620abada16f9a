"""The networks of the zoo: small configurations, by library. Each is a function that makes the
network, the fields of twelve samples and the name of its loss."""
import collections

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES = 16
# named: fields are given by name; pick: takes the tensor out of what the network returns.
Network = collections.namedtuple("Network", "net fields loss named pick", defaults=(False, None))


def images(size, channels=3):
    return {"x": torch.randn(SAMPLES, channels, size, size)}


def tokens(length=10, vocabulary=60):
    return torch.randint(2, vocabulary, (SAMPLES, length))


def classes_last(out):
    out = out["out"] if isinstance(out, dict) else out
    return out.permute(0, 2, 3, 1)


def vision(name, size=96, pick=None, **more):
    def make():
        import torchvision.models as models
        options = {"num_classes": 7, "weights": None, **more}
        builder = models.get_model_builder(name)
        return Network(builder(**options), images(size), "cross_entropy", False, pick)
    return make


def segmentation(name, size=64):
    return vision(name, size, classes_last, weights_backbone=None)


TORCHVISION = {
    "alexnet": vision("alexnet", 64), "vgg11": vision("vgg11", 32),
    "vgg11_bn": vision("vgg11_bn", 32),
    "resnet18": vision("resnet18"), "resnet50": vision("resnet50"),
    "resnext50": vision("resnext50_32x4d", 64), "wide_resnet50": vision("wide_resnet50_2", 64),
    "densenet121": vision("densenet121", 64), "squeezenet1_1": vision("squeezenet1_1"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "efficientnet_v2_s": vision("efficientnet_v2_s", 64),
    "shufflenet_v2": vision("shufflenet_v2_x0_5"), "mnasnet0_5": vision("mnasnet0_5"),
    "regnet_y_400mf": vision("regnet_y_400mf"), "regnet_x_400mf": vision("regnet_x_400mf"),
    "convnext_tiny": vision("convnext_tiny", 32),
    "vit_b_16": vision("vit_b_16", 32, image_size=32),
    "swin_t": vision("swin_t", 64), "swin_v2_t": vision("swin_v2_t", 64),
    "maxvit_t": vision("maxvit_t", 224),
    "googlenet": vision("googlenet", 96, aux_logits=True, init_weights=True),
    "inception_v3": vision("inception_v3", 160, aux_logits=False, init_weights=False),
    "fcn_resnet50": segmentation("fcn_resnet50", 64),
    "deeplabv3_mobilenet": segmentation("deeplabv3_mobilenet_v3_large"),
    "lraspp_mobilenet": segmentation("lraspp_mobilenet_v3_large"),
    "r3d_18": None,
}


def video():
    from torchvision.models.video import r3d_18
    return Network(r3d_18(num_classes=7), {"x": torch.randn(SAMPLES, 3, 4, 24, 24)},
                   "cross_entropy")


TORCHVISION["r3d_18"] = video

# Options that most configurations of transformers know.
SMALL = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 32, "pad_token_id": 0,
         "bos_token_id": 0, "eos_token_id": 1}


def hugging(config, model, fields=None, pick=None, loss="cross_entropy", **more):
    def make():
        import transformers
        made = getattr(transformers, config)(**more)
        made.use_cache = False
        net = getattr(transformers, model)(made)
        given = fields() if fields else {"input_ids": tokens()}
        return Network(net, given, loss, True, pick)
    return make


def small(config, model, fields=None, **more):
    return hugging(config, model, fields, **{**SMALL, **more})


def with_mask():
    mask = torch.ones(SAMPLES, 10, dtype=torch.int64)
    mask[::2, 7:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


def two_texts():
    return {"input_ids": tokens(), "decoder_input_ids": tokens(6)}


def pixels(size=32):
    return lambda: {"pixel_values": torch.randn(SAMPLES, 3, size, size)}


def spectrum():
    return {"input_features": torch.randn(SAMPLES, 16, 40), "decoder_input_ids": tokens(6)}


GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
VIT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
       "num_attention_heads": 4, "image_size": 32, "patch_size": 8, "num_labels": 7}
TRANSFORMERS = {
    "bert": small("BertConfig", "BertForSequenceClassification", num_labels=5),
    "bert_masked": small("BertConfig", "BertForMaskedLM", with_mask),
    "distilbert": hugging("DistilBertConfig", "DistilBertForSequenceClassification", vocab_size=60,
                          dim=32, hidden_dim=48, n_layers=2, n_heads=4,
                          max_position_embeddings=32, num_labels=5),
    "roberta": small("RobertaConfig", "RobertaForTokenClassification", with_mask, num_labels=5),
    "albert": small("AlbertConfig", "AlbertForSequenceClassification", embedding_size=16,
                    num_labels=5),
    "electra": small("ElectraConfig", "ElectraForSequenceClassification", embedding_size=16,
                     num_labels=5),
    "deberta_v2": small("DebertaV2Config", "DebertaV2ForSequenceClassification",
                        relative_attention=True, pos_att_type=["p2c", "c2p"], num_labels=5),
    "gpt2": hugging("GPT2Config", "GPT2LMHeadModel", vocab_size=60, n_embd=32, n_layer=2, n_head=4,
                    n_positions=32, bos_token_id=0, eos_token_id=1),
    "gpt2_mask": hugging("GPT2Config", "GPT2LMHeadModel", with_mask, vocab_size=60, n_embd=32,
                         n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=1),
    "gpt_neox": small("GPTNeoXConfig", "GPTNeoXForCausalLM"),
    "gptj": hugging("GPTJConfig", "GPTJForCausalLM", vocab_size=60, n_embd=32, n_layer=2, n_head=4,
                    n_positions=32, rotary_dim=4),
    "opt": small("OPTConfig", "OPTForCausalLM", ffn_dim=48, word_embed_proj_dim=32),
    "bloom": small("BloomConfig", "BloomForCausalLM", n_layer=2, n_head=4),
    "llama": small("LlamaConfig", "LlamaForCausalLM", **GROUPED),
    "llama_mask": small("LlamaConfig", "LlamaForCausalLM", with_mask, **GROUPED),
    "mistral": small("MistralConfig", "MistralForCausalLM", sliding_window=4, **GROUPED),
    "mixtral": small("MixtralConfig", "MixtralForCausalLM", **GROUPED, **EXPERTS),
    "qwen2": small("Qwen2Config", "Qwen2ForCausalLM", **GROUPED),
    "qwen3": small("Qwen3Config", "Qwen3ForCausalLM", **GROUPED),
    "gemma": small("GemmaConfig", "GemmaForCausalLM", **GROUPED),
    "gemma2": small("Gemma2Config", "Gemma2ForCausalLM", **GROUPED),
    "gemma3": small("Gemma3TextConfig", "Gemma3ForCausalLM", **GROUPED),
    "phi": small("PhiConfig", "PhiForCausalLM"),
    "phi3": small("Phi3Config", "Phi3ForCausalLM", num_key_value_heads=2),
    "falcon": small("FalconConfig", "FalconForCausalLM"),
    "olmo2": small("Olmo2Config", "Olmo2ForCausalLM", **GROUPED),
    "t5": hugging("T5Config", "T5ForConditionalGeneration", two_texts, vocab_size=60, d_model=32,
                  d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0),
    "bart": hugging("BartConfig", "BartForConditionalGeneration", two_texts, vocab_size=60,
                    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
                    max_position_embeddings=32),
    "vit": hugging("ViTConfig", "ViTForImageClassification", pixels(), **VIT),
    "deit": hugging("DeiTConfig", "DeiTForImageClassification", pixels(), **VIT),
    "beit": hugging("BeitConfig", "BeitForImageClassification", pixels(), **VIT),
    "dinov2": hugging("Dinov2Config", "Dinov2ForImageClassification", pixels(), **VIT),
    "convnext": hugging("ConvNextConfig", "ConvNextForImageClassification", pixels(64),
                        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=7),
    "segformer": hugging("SegformerConfig", "SegformerForImageClassification", pixels(64),
                         hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 3, 4],
                         depths=[1, 1, 1, 1], decoder_hidden_size=16, num_labels=7),
    "clip_vision": hugging("CLIPVisionConfig", "CLIPVisionModel", pixels(), loss="mse", **VIT),
    "whisper": hugging("WhisperConfig", "WhisperForConditionalGeneration", spectrum, vocab_size=60,
                       num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
                       encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                       decoder_ffn_dim=48, max_source_positions=20, max_target_positions=16,
                       pad_token_id=0, bos_token_id=0, eos_token_id=1, decoder_start_token_id=0),
    "mamba": small("MambaConfig", "MambaForCausalLM", state_size=4),
}

TRANSFORMERS |= {
    "biogpt": small("BioGptConfig", "BioGptForCausalLM"),
    "starcoder2": small("Starcoder2Config", "Starcoder2ForCausalLM", num_key_value_heads=2),
    "stablelm": small("StableLmConfig", "StableLmForCausalLM", num_key_value_heads=2),
    "cohere": small("CohereConfig", "CohereForCausalLM", num_key_value_heads=2),
    "granite": small("GraniteConfig", "GraniteForCausalLM", num_key_value_heads=2),
    "granitemoe": small("GraniteMoeConfig", "GraniteMoeForCausalLM", num_key_value_heads=2,
                        **EXPERTS),
    "helium": small("HeliumConfig", "HeliumForCausalLM", **GROUPED),
    "persimmon": small("PersimmonConfig", "PersimmonForCausalLM"),
    "qwen3_moe": small("Qwen3MoeConfig", "Qwen3MoeForCausalLM", decoder_sparse_step=1,
                       num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, **GROUPED),
    "olmoe": small("OlmoeConfig", "OlmoeForCausalLM", num_key_value_heads=2, num_experts=4,
                   num_experts_per_tok=2),
    "gpt_oss": small("GptOssConfig", "GptOssForCausalLM", sliding_window=4, **GROUPED, **EXPERTS),
    "glm4": small("Glm4Config", "Glm4ForCausalLM", **GROUPED),
    "diffllama": small("DiffLlamaConfig", "DiffLlamaForCausalLM", num_key_value_heads=2),
    "smollm3": small("SmolLM3Config", "SmolLM3ForCausalLM", num_key_value_heads=2),
    "mamba2": small("Mamba2Config", "Mamba2ForCausalLM", state_size=8, num_heads=8, head_dim=8,
                    n_groups=2, chunk_size=4),
    "recurrent_gemma": small("RecurrentGemmaConfig", "RecurrentGemmaForCausalLM", lru_width=32,
                             attention_window_size=8, num_key_value_heads=1),
    "rwkv": small("RwkvConfig", "RwkvForCausalLM", context_length=32, attention_hidden_size=32),
    "mpt": hugging("MptConfig", "MptForCausalLM", vocab_size=60, d_model=32, n_layers=2, n_heads=4,
                   max_seq_len=32),
    "xlnet": hugging("XLNetConfig", "XLNetForSequenceClassification", vocab_size=60, d_model=32,
                     d_inner=48, n_layer=2, n_head=4, num_labels=5),
    "mpnet": small("MPNetConfig", "MPNetForSequenceClassification", num_labels=5),
    "roformer": small("RoFormerConfig", "RoFormerForSequenceClassification", embedding_size=32,
                      num_labels=5),
    "rembert": small("RemBertConfig", "RemBertForSequenceClassification", num_labels=5,
                     input_embedding_size=16, output_embedding_size=16),
    "swin_hf": hugging("SwinConfig", "SwinForImageClassification", pixels(), image_size=32,
                       patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4,
                       num_labels=7),
    "videomae": hugging("VideoMAEConfig", "VideoMAEForVideoClassification",
                        lambda: {"pixel_values": torch.randn(SAMPLES, 4, 3, 32, 32)},
                        num_frames=4, tubelet_size=2, **VIT),
    "timesformer": hugging("TimesformerConfig", "TimesformerForVideoClassification",
                           lambda: {"pixel_values": torch.randn(SAMPLES, 4, 3, 32, 32)},
                           num_frames=4, **VIT),
}


def timm_of(name, size=64, **more):
    def make():
        import timm
        return Network(timm.create_model(name, num_classes=7, **more), images(size),
                       "cross_entropy")
    return make


TIMM = {
    "vit_tiny": timm_of("vit_tiny_patch16_224", img_size=64, depth=2),
    "deit_tiny": timm_of("deit_tiny_patch16_224", img_size=64, depth=2),
    "mixer": timm_of("mixer_s32_224", img_size=64),
    "convnextv2": timm_of("convnextv2_atto"),
    "nfnet": timm_of("nfnet_l0"),
    "poolformer": timm_of("poolformer_s12"),
    "coat": timm_of("coat_lite_tiny", img_size=64),
    "resnet26d": timm_of("resnet26d", 32),
    "eva02": timm_of("eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    "cait": timm_of("cait_xxs24_224", img_size=64, depth=2),
    "pit": timm_of("pit_ti_224", 224, depth=(1, 1, 1)),
    "xcit": timm_of("xcit_nano_12_p16_224", depth=2),
    "ghostnet": timm_of("ghostnet_050"),
    "hrnet": timm_of("hrnet_w18_small", 32),
    "dla34": timm_of("dla34"),
    "res2net": timm_of("res2net50_26w_4s", 32),
    "repvgg": timm_of("repvgg_a0", 32),
    "edgenext": timm_of("edgenext_xx_small"),
    "mobilevit": timm_of("mobilevit_xxs"),
    "efficientformer": timm_of("efficientformer_l1", 224),
}

# Of families whose networks take an image of any size.
TIMM |= {name: timm_of(name) for name in [
    "gernet_s", "cspresnet50", "darknet17", "dpn48b", "mixnet_s", "tinynet_e", "fbnetc_100",
    "efficientnet_lite0", "mobilenetv1_100", "efficientvit_b0", "fasternet_t0", "fastvit_t8",
    "hardcorenas_a", "hgnetv2_b0", "inception_next_atto", "mambaout_femto", "lcnet_035",
    "mobilenetv3_small_050", "nextvit_small", "pvt_v2_b0", "rdnet_tiny", "regnetx_002",
    "regnety_002", "repghostnet_050", "repvit_m1", "resnest14d", "resnetv2_18", "rexnet_100",
    "selecsls42", "legacy_seresnet18", "skresnet18", "starnet_s1", "tresnet_m", "xception41",
    "ese_vovnet19b_dw", "gcresnet33ts", "eca_resnet33ts", "resnetblur18", "test_nfnet",
    "iformer_t"]}
TIMM |= {name: timm_of(name, 224) for name in [
    "efficientformerv2_s0", "efficientvit_m0", "gcvit_xxtiny", "levit_128s", "coatnet_pico_rw_224",
    "shvit_s1", "swiftformer_xs", "tiny_vit_5m_224", "visformer_tiny"]}
TIMM |= {name: timm_of(name, img_size=64) for name in [
    "botnet26t_256", "lambda_resnet26t", "maxvit_pico_rw_256", "gmlp_ti16_224", "resmlp_12_224",
    "vitamin_small_224"]}
TIMM |= {name: timm_of(name, img_size=64, depth=2) for name in [
    "deit_tiny_distilled_patch16_224", "tnt_s_legacy_patch16_224", "vit_relpos_small_patch16_224"]}


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1, self.down2 = self.two(3, width), self.two(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last, self.head = self.two(2 * width, width), nn.Conv2d(width, 5, 1)

    @staticmethod
    def two(inside, outside):
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside),
                             nn.ReLU(inplace=True), nn.Conv2d(outside, outside, 3, padding=1),
                             nn.ReLU(inplace=True))

    def forward(self, x):
        a = self.down1(x)
        b = self.up(self.down2(F.max_pool2d(a, 2)))
        pads = [0, a.shape[3] - b.shape[3], 0, a.shape[2] - b.shape[2]]
        return self.head(self.last(torch.cat([a, F.pad(b, pads)], 1)))


class Recurrent(nn.Module):
    def __init__(self, kind, vocabulary=60, width=16, hidden=12):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = getattr(nn, kind)(width, hidden, num_layers=2, batch_first=True,
                                        bidirectional=True)
        self.head = nn.Linear(2 * hidden, 5)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids))[0][:, -1])


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 16)
        self.encoder = nn.GRU(16, 16, batch_first=True)
        self.decoder, self.head = nn.LSTMCell(16, 16), nn.Linear(16, 60)

    def forward(self, ids):
        _, state = self.encoder(self.embed(ids))
        h, c, out = state[0], torch.zeros_like(state[0]), []
        for step in range(4):
            h, c = self.decoder(self.embed(ids[:, step]), (h, c))
            out.append(self.head(h))
        return torch.stack(out, 1)


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(60, 12), nn.Linear(12, 3)
        self.one, self.two = nn.GRUCell(12, 12), nn.RNNCell(12, 12, nonlinearity="relu")

    def forward(self, ids):
        x = self.embed(ids)
        h = k = torch.zeros_like(x[:, 0])
        for step in range(3):
            h, k = self.one(x[:, step], h), self.two(x[:, step], k)
        return self.head(h + k)


class VAE(nn.Module):
    def __init__(self, noise=0.0):
        super().__init__()
        self.encoder, self.noise = nn.Linear(20, 16), noise
        self.decoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 20))

    def forward(self, x):
        mean, scale = self.encoder(x).chunk(2, dim=1)
        draw = torch.randn_like(mean) * self.noise
        return self.decoder(mean + torch.exp(0.5 * scale) * draw)


class Writes(nn.Module):
    """Writes into parts of tensors, as many hand-made networks do."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(20, 20), nn.Linear(20, 6)

    def forward(self, x):
        y = self.one(x)
        mask = torch.zeros_like(y)
        mask[:, ::2] = 1
        z = torch.zeros_like(y)
        z[:, :10] = y[:, 10:]
        z[:, 10:] += y[:, :10]
        rows = torch.arange(x.shape[0])
        z = z * mask
        z[rows, 3] = 2.0
        z[rows, (x[:, 0] > 0).long()] = x[:, 4]
        z[x > 1.5] = 0.5
        return self.two(z + y[:, torch.tensor([1, 0] * 10)])


def discriminator():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)),
                         nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.InstanceNorm2d(16),
                         nn.LeakyReLU(0.2, inplace=True), nn.Flatten(), nn.Linear(256, 1))


def dcgan():
    return nn.Sequential(nn.Unflatten(1, (20, 1, 1)), nn.ConvTranspose2d(20, 16, 4),
                         nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 3, 4, 2, 1),
                         nn.Tanh())


def vectors(width=20):
    return {"x": torch.randn(SAMPLES, width)}


OWN = {
    "unet": lambda: Network(UNet(), images(18), "cross_entropy", False, classes_last),
    "lstm": lambda: Network(Recurrent("LSTM"), {"ids": tokens()}, "cross_entropy"),
    "gru": lambda: Network(Recurrent("GRU"), {"ids": tokens()}, "cross_entropy"),
    "rnn": lambda: Network(Recurrent("RNN"), {"ids": tokens()}, "cross_entropy"),
    "seq2seq": lambda: Network(Seq2Seq(), {"ids": tokens()}, "cross_entropy"),
    "autoencoder": lambda: Network(nn.Sequential(nn.Linear(20, 8), nn.GELU(), nn.Linear(8, 20)),
                                   vectors(), "mse"),
    "vae": lambda: Network(VAE(), vectors(), "mse"),
    "discriminator": lambda: Network(discriminator(), images(16), "mse"),
    "dcgan": lambda: Network(dcgan(), vectors(), "mse"),
    "encoder": lambda: Network(nn.TransformerEncoder(nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True), 2), {"x": torch.randn(SAMPLES, 7, 16)}, "mse"),
    "transformer": lambda: Network(
        nn.Transformer(16, 4, 1, 1, 32, batch_first=True),
        {"src": torch.randn(SAMPLES, 7, 16), "tgt": torch.randn(SAMPLES, 5, 16)}, "mse"),
    "cells": lambda: Network(Cells(), {"ids": tokens()}, "mse"),
    "writes": lambda: Network(Writes(), vectors(), "cross_entropy"),
}

LIBRARIES = {"torchvision": TORCHVISION, "transformers": TRANSFORMERS, "timm": TIMM, "own": OWN}
