import onnxruntime as ort, numpy as np, hashlib, functools
from tickpath.engines import *
class G:
    def __init__(s, f): s.replay=f
class E:
    def __init__(s, path):
        so=ort.SessionOptions(); so.intra_op_num_threads=1; so.inter_op_num_threads=1
        so.add_session_config_entry('session.intra_op.allow_spinning','0')
        s.s=ort.InferenceSession(str(path),so,providers=['CPUExecutionProvider'])
        s.ro=ort.RunOptions(); s.ro.add_run_config_entry('gpu_graph_id','-1')
        f=lambda t: TensorSpec(t.name,np.dtype('f4'),(1,*t.shape[1:]),0)
        s.spec=EngineSpec(tuple(map(f,s.s.get_inputs())),tuple(map(f,s.s.get_outputs())),'ort','fp32','')
    def capture(s,i,o):
        b=s.s.io_binding(); s.keep=(i,o)
        for t,a in zip(s.spec.inputs,i): b.bind_input(t.name,'cpu',0,np.float32,a.shape,a.ctypes.data)
        for t,a in zip(s.spec.outputs,o): b.bind_output(t.name,'cpu',0,np.float32,a.shape,a.ctypes.data)
        return G(functools.partial(s.s.run_with_iobinding,b,s.ro))
    def close(s): pass
def load_engine(p,shapes): return E(p)
