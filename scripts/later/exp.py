import sys, json, time, os
sys.path.insert(0,'./lab')  # frozen labkit
import labkit
from labkit import runs, opening, loop, parts as P, checkpoint, training, learn
from labkit.collect import ActorPolicy
from labkit.config import SACConfig
from labkit.evaluation import evaluate
import numpy as np
name, run_dir, mode, steps, every, start = sys.argv[1], sys.argv[2], sys.argv[3], int(float(sys.argv[4])), int(float(sys.argv[5])), int(float(sys.argv[6]))
over = json.loads(sys.argv[7]) if len(sys.argv)>7 else {}
seed = int(over.pop('seed', 0))
DEC = [0.999, 0.9995, 0.9998]
episodes=8
config = SACConfig.parse({'seed':seed,'num_iterations':steps,'eval_interval':every,'interim_eval_episodes':1,'checkpoint_seconds':0,'policy_save_interval':0,'environment_timeout':0,**over})
run = runs.Run(__import__('pathlib').Path(run_dir), config)
out=open(f'./{name}.csv','a')
class EPolicy(ActorPolicy):
    greedy_layers=None
    def __call__(self, o):
        if self._random is not None and not self._noisy and self.greedy_layers is not None:
            keep=self._layers; self._layers=self.greedy_layers
            try: return super().__call__(o)
            finally: self._layers=keep
        return super().__call__(o)
class Loop(loop.Loop):
    def __init__(self,*a):
        super().__init__(*a)
        self.ema={}
        self.mode=mode
        p=EPolicy(self.parts.agent, self.config.seed+P.NOISE_SEED, self.config.greedy_share)
        p.set_state(self.policy.get_state()); p.set_weights(learn.flat_weights(self.parts.agent).numpy()); p._noisy=self.policy._noisy
        self.policy=p; self.collector._policy=p if hasattr(self.collector,'_policy') else p
        for k,v in list(self.collector.__dict__.items()):
            if isinstance(v, ActorPolicy): setattr(self.collector,k,p)
            if callable(v) and getattr(v,'__self__',None).__class__ is ActorPolicy: setattr(self.collector,k,p.new_episode)
    def iterate(self,pool,stop):
        before=self.step
        n=super().iterate(pool,stop)
        w=np.concatenate([a.ravel() for pair in self.policy._layers for a in pair])
        for d in DEC:
            k=d**n
            # bias-corrected: early average is over what there is
            e,c=self.ema.get(d,(np.zeros_like(w),0.0))
            self.ema[d]=(k*e+(1-k)*w, k*c+(1-k))
        if mode.startswith('ema'):
            d=float(mode[3:]); e,c=self.ema[d]
            tmp=self.policy._layers; self.policy.set_weights((e/c).astype(np.float32)); self.policy.greedy_layers=self.policy._layers; self.policy._layers=tmp
        if self.step%every==0 and self.step>=start:
            row=[self.step]
            for d in ['raw']+DEC:
                self.greedy.set_weights(w if d=='raw' else (self.ema[d][0]/self.ema[d][1]).astype(np.float32))
                r=evaluate(self.parts.eval_env,self.greedy,episodes,12345+self.step)
                row+= [round(r.mean_return,3), int(np.mean(r.lengths))]
            out.write(','.join(map(str,row))+f',{self.collector.mean_return():.2f}\n'); out.flush()
        return n
    def evaluate(self, stop, final=False):
        self.owes_evaluation=False
training.Loop=Loop
if not (run.path/'config.json').exists():
    run.path.mkdir(parents=True,exist_ok=True); runs.Run.create(run.path, config)
labkit.train(config, run)
