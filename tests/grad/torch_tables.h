// Made by make_torch_tables.py; PyTorch 1.13.0a0, float64.
#ifndef TRIREME_TESTS_TORCH_TABLES_H
#define TRIREME_TESTS_TORCH_TABLES_H

#include "ops/ops.h"

typedef struct torch_conv {
    int64_t x[4], features, kernel[2], stride[2], padding[2], dilation[2], groups;
    double y[2];
} torch_conv;
static const torch_conv torch_convs[] = {
    {{2, 3, 5, 4}, 2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, {4.44573220346797, 484.8510401251229}},
    {{1, 1, 1, 1}, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, {0.8657903250040412, 0.8213206171487483}},
    {{2, 4, 7, 9}, 6, {3, 2}, {2, 3}, {0, 1}, {1, 2}, 2, {4.270950349283975, 258.8979886775473}},
    {{1, 3, 8, 6}, 3, {2, 4}, {1, 2}, {2, 3}, {3, 1}, 3, {-7.238151159652737, 193.99611673260046}},
};

typedef struct torch_pool {
    int64_t x[4], kernel[2], stride[2], padding[2];
    double y[2];
} torch_pool;
static const torch_pool torch_pools[] = {
    {{2, 3, 6, 4}, {2, 2}, {2, 2}, {0, 0}, {-0.45247425871827596, 25.735924937778687}},
    {{1, 2, 7, 5}, {3, 2}, {2, 1}, {1, 1}, {-1.5993709710489776, 31.298027535457678}},
};

typedef struct torch_avg_pool {
    int64_t x[4];
    tri_avg_pool2d_attr attr;
    double y[2];
} torch_avg_pool;
static const torch_avg_pool torch_avg_pools[] = {
    {{2, 3, 6, 4},
     {.kernel = {2, 2},
      .stride = {2, 2},
      .padding = {0, 0},
      .exclude_padding = false,
      .out = {0, 0}},
     {0.21319200500783592, 1.7585111752282205}},
    {{1, 2, 7, 5},
     {.kernel = {3, 2},
      .stride = {2, 1},
      .padding = {1, 1},
      .exclude_padding = false,
      .out = {0, 0}},
     {-1.1738261805539034, 3.1590982448089857}},
    {{1, 2, 7, 5},
     {.kernel = {3, 2},
      .stride = {2, 1},
      .padding = {1, 1},
      .exclude_padding = true,
      .out = {0, 0}},
     {-1.3614053481677288, 8.36757772703822}},
    {{2, 3, 5, 4},
     {.kernel = {0, 0},
      .stride = {0, 0},
      .padding = {0, 0},
      .exclude_padding = false,
      .out = {1, 1}},
     {0.05803580461566367, 0.00741354042149336}},
    {{1, 2, 7, 5},
     {.kernel = {0, 0},
      .stride = {0, 0},
      .padding = {0, 0},
      .exclude_padding = false,
      .out = {3, 2}},
     {0.47460805588275384, 0.20288035658062503}},
};

static const double torch_bn_y[] = {1.7873771387738242, 83.04494027215357};
static const double torch_bn_mean[] = {0.0006069013625932579, 0.0006735684962149589};
static const double torch_bn_var[] = {0.955980442253541, 0.9494485601199811};
static const double torch_bn_eval[] = {0.7697298195292908, 61.43088701365466};

static const double torch_log_softmax[] = {-1.2104923600536266, 279.8538673457129};
static const double torch_nll = 6.2303102083584845;
static const double torch_cross_entropy = 20.48636126220454;
static const double torch_soft_labels[] = {
    0.5364558611096838,  0.27104744307201933, 0.11256650775487423, 0.07993018806342261,
    0.09554748992756289, 0.25285551895948527, 0.4103573545663252,  0.24123963654662658,
    0.14477440207879588, 0.09540498616967998, 0.19686794899275573, 0.5629526627587684,
    0.5593806354363423,  0.19608800400103457, 0.08779576760370476, 0.15673559295891823,
    0.397185670499432,   0.41106463332107535, 0.12225628453348827, 0.06949341164600438,
    0.19949540979611355, 0.5057772793298663,  0.22361110712745585, 0.07111620374656442};
static const double torch_soft_cross_entropy = 12.109071723187073;
static const double torch_smooth_cross_entropy = 12.537412231739944;
static const double torch_smooth_labels = 19.775536437252832;
static const double torch_smooth_labels_grad[] = {1.8941369937161938, 6.222544563183858};
static const double torch_mse = 10.78449040211855;
static const double torch_binary_cross_entropy = 9.46360913579706;
static const double torch_relative_l2 = 5.647723277972761;

static const double torch_embedding[] = {-0.7999192887376517, 9.58838344336889};
static const double torch_rms_norm[] = {3.316928221907074, 23.717607872816036};
static const double torch_layer_norm[] = {3.350445800180951, 47.05465760727751};
static const double torch_layer_norm_plain[] = {11.44836331564144, 47.900529071617086};
static const double torch_rotary[] = {2.4859986839876376, 116.9642891915787};
static const double torch_gelu[] = {12.937017826775305, 149.5118598972423};
static const double torch_gelu_tanh[] = {12.936836982572197, 149.5253096630439};
static const double torch_silu_mul[] = {6.244338934253484, 51.64771570723691};
static const double torch_sigmoid[] = {3.401780766742762, 15.450859146922019};
static const double torch_tanh[] = {6.870729411862716, 30.538591175471495};
static const double torch_concat[] = {1.677991787735859, 19.515768314698274};
static const double torch_cross_entropy_tokens = 20.48636126220454;

typedef struct torch_attention {
    int64_t q[4], k[4];
    double scale;
    bool causal;
    double y[2], log_sum_exp[2];
} torch_attention;
static const torch_attention torch_attentions[] = {
    {{2, 5, 4, 6},
     {2, 5, 2, 6},
     0.5,
     true,
     {-1.2066004619689692, 69.91376945263438},
     {-0.6821122265140798, 96.25632642604731}},
    {{1, 3, 3, 4},
     {1, 7, 1, 4},
     1.5,
     true,
     {2.1216600422513165, 14.297815066351836},
     {4.914419017259008, 279.9350212505288}},
    {{2, 4, 2, 3},
     {2, 6, 2, 3},
     0.75,
     false,
     {0.10868150496988745, 12.49627487656529},
     {0.21049448785829883, 114.74927053233466}},
};

typedef struct torch_update {
    const char *op;
    double lr;
    union {
        tri_sgd_attr sgd;
        tri_adam_attr adam;
        tri_adadelta_attr adadelta;
    } attr;
    double first[5], last[5];
} torch_update;
static const torch_update torch_updates[] = {
    {"sgd",
     0.1,
     {.sgd = {.lr_factor = 1, .momentum = 0}},
     {0.9414700054629669, 1.002804105900485, 0.25738572490538175, -0.7201335721229979,
      -1.0737631549464064},
     {0.8540498580108593, 0.7999493945458335, 0.10025790697982347, -0.6974922654569368,
      -0.8883346741331072}},
    {"sgd",
     0.2,
     {.sgd = {.lr_factor = 0.5, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.02}},
     {0.9397870634933511, 1.0009200709395576, 0.25681460117700444, -0.718883141556902,
      -1.0717722894517314},
     {1.1481417487740806, 0.8925841237570247, -0.08717887117020343, -1.011355941938022,
      -1.051414467446125}},
    {"sgd",
     0.025,
     {.sgd = {.lr_factor = 4, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01}},
     {1.019954574214369, 1.0497377747850207, 0.23433080212322407, -0.7949428158735706,
      -1.134635702088396},
     {1.0443468623366976, 0.6693766802139672, -0.2523176822889585, -0.977362810890447,
      -0.8450361686940064}},
    {"adam",
     0.01,
     {.adam = {.lr_factor = 1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6}},
     {0.8514709748078085, 0.9520174640128122, 0.27556189967955114, -0.6352152725125578,
      -1.0054327345709921},
     {0.8647656142874419, 0.9441140063124186, 0.2501383304451626, -0.6534519618061112,
      -1.0046503830725364}},
    {"adam",
     0.02,
     {.adam = {.lr_factor = 0.5, .beta1 = 0.8, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}},
     {0.8514709846987075, 0.9520174802690927, 0.27556186451090486, -0.6352152829351415,
      -1.0054327471911602},
     {0.8602031309396261, 0.9380394972101255, 0.2497419389147396, -0.6501425835455303,
      -0.9984165150144613}},
    {"adam",
     0.0025,
     {.adam = {.lr_factor = 4,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .eps = 1e-8,
               .weight_decay = 0.1,
               .decoupled = true}},
     {0.8506295137230876, 0.9510754628187987, 0.2752763026793759, -0.6345900676595224,
      -1.0044373144624084},
     {0.861327911602034, 0.940302428999284, 0.2490302086228278, -0.650873771872953,
      -1.000615744645239}},
    {"adadelta",
     1.0,
     {.adadelta = {.lr_factor = 1, .rho = 0.9, .eps = 1e-6}},
     {0.8446332466564854, 0.9451797153336614, 0.2823997856719272, -0.6283775431585182,
      -0.9985949992282014},
     {0.8415234631011107, 0.9353701422450528, 0.2751386056321558, -0.6275325578121906,
      -0.9911308686081699}},
    {"adadelta",
     1.0,
     {.adadelta = {.lr_factor = 0.5, .rho = 0.8, .eps = 1e-4, .weight_decay = 0.05}},
     {0.8526482798718841, 0.9531889423521938, 0.27441328150609806, -0.6363923071218668,
      -1.0066078961915443},
     {0.8392221534362014, 0.9144967513540597, 0.24829885718219724, -0.6319365206157479,
      -0.9769064686173452}},
};

#endif
