// Recurrent layers over whole sequences: LSTM, GRU, and plain ones. Parameters have PyTorch's names
// and sizes, so that its state dicts fit: for each layer l0, l1, … weight_ih_l0 [gates · H, in],
// weight_hh_l0 [gates · H, H], bias_ih_l0 and bias_hh_l0 [gates · H], and those of the opposite
// direction with _reverse behind the name. The gates lie in PyTorch's order.
#ifndef TRIREME_RECURRENT_H
#define TRIREME_RECURRENT_H

#include <trireme/api.h>
#include <trireme/graph.h>
#include <trireme/parameters.h>

TRI_API_BEGIN

typedef struct tri_recurrent_options {
    int64_t hidden;     // H, the units of a layer
    int64_t layers;     // of which each reads what the one before makes; 0 means 1
    bool bidirectional; // a second direction, from the end of the sequence, beside the first one
    bool no_bias;
    bool time_first; // sequences are [T, N, ..], as in PyTorch unless it gets batch_first
    bool relu;       // of tri_rnn: ReLU in place of tanh
    // Of tri_lstm, PyTorch's proj_size: h is projected to so many units, fewer than H, by
    // weight_hr_l0, … [projection, H], and has this size in place of H: so weight_hh_l0 is
    // [gates · H, projection]. 0: it is not. A step computes as much as without a projection.
    int64_t projection;
    double dropout; // in training between layers, as tri_dropout: NAME.dropout_l0, …
    // The first states [N, layers · directions, H], where PyTorch has [layers · directions, N, H];
    // of a layer, the direction from the begin comes first. None: 0. Only an LSTM has c.
    tri_value h, c;
    // How many steps each sequence has, I64 [N], 1 to T: what PyTorch packs. Behind its end the
    // result is 0, the last states are those of its own last step, and the opposite direction
    // begins there. None: all have T. Numbers out of range count as the nearest that is in it.
    tri_value lengths;
    tri_init weight_init, bias_init; // in place of uniform numbers within ±1/√H
} tri_recurrent_options;

// The last states, in the shape of the first ones. Only an LSTM has c.
typedef struct tri_recurrent_states {
    tri_value h, c;
} tri_recurrent_states;

// An LSTM. x [N, T, in] → [N, T, directions · H], the states h after each step of the last layer.
// *last becomes the states of all layers after the last step; NULL: they are not wanted.
tri_value tri_lstm(tri_graph *graph, const char *name, tri_value x, tri_recurrent_options options,
                   tri_recurrent_states *last);
// A GRU: the same with one state, h.
tri_value tri_gru(tri_graph *graph, const char *name, tri_value x, tri_recurrent_options options,
                  tri_recurrent_states *last);
// PyTorch's RNN: h = tanh(x·W_ihᵀ + b_ih + h·W_hhᵀ + b_hh).
tri_value tri_rnn(tri_graph *graph, const char *name, tri_value x, tri_recurrent_options options,
                  tri_recurrent_states *last);

// PyTorch's LSTMCell: one step. x [N, in] and the states h and c [N, H], none: 0 → h; *c becomes c
// after the step. The parameters are weight_ih, weight_hh, bias_ih and bias_hh. Of the options only
// hidden, no_bias, relu and the initial weights are read.
tri_value tri_lstm_cell(tri_graph *graph, const char *name, tri_value x, tri_value h, tri_value *c,
                        tri_recurrent_options options);
// PyTorch's GRUCell: one step, from the state h [N, H] to the next; none: from 0.
tri_value tri_gru_cell(tri_graph *graph, const char *name, tri_value x, tri_value h,
                       tri_recurrent_options options);
// PyTorch's RNNCell.
tri_value tri_rnn_cell(tri_graph *graph, const char *name, tri_value x, tri_value h,
                       tri_recurrent_options options);

TRI_API_END

#endif
